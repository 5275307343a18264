"""A web dashboard for the service. NiceGUI is imported on first use.

Pages read data through the library and get their scope from a `Page`, like endpoints from a
principal.
"""

from importlib.util import find_spec


def is_installed() -> bool:
    """Return True if the extra `dashboard` is installed."""
    return find_spec("nicegui") is not None
