"""The dashboard: pages of the service for people. NiceGUI is imported when it is first asked for.

Thin: what is shown is read through the library, as everywhere else in the service. A page gets
what it shows from a `Visit`, which is the only way to a scope in here.
"""

from importlib.util import find_spec


def is_installed() -> bool:
    """Whether the extra `dashboard` is there."""
    return find_spec("nicegui") is not None
