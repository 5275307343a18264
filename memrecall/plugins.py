"""Third-party plugins: named by a setting, discovered by entry point, loaded when needed.

A package registers one in its `pyproject.toml`:

    [project.entry-points."memrecall.embedders"]
    acme = "acme_memrecall:make_embedder"

and `MEMRECALL_EMBEDDER=acme:large` calls `make_embedder` with "large".
"""

from importlib.metadata import entry_points
from typing import Any, Literal

from memrecall.errors import InvalidArgument

Kind = Literal["embedders", "models", "graph_dbs", "vector_dbs", "importers"]

_PREFIX = "memrecall."


def plugin_names(kind: Kind) -> list[str]:
    """Return the names of all installed plugins of a kind."""
    return sorted({point.name for point in entry_points(group=_PREFIX + kind)})


def find_plugin(kind: Kind, name: str) -> Any | None:
    """Load the plugin of that name; None if it is not installed."""
    for point in entry_points(group=_PREFIX + kind, name=name):
        try:
            return point.load()
        except (ImportError, AttributeError) as error:
            raise InvalidArgument(
                f"the plugin {name!r} of {_PREFIX}{kind} cannot be loaded: {error}",
                hint=f"Check the package of {point.value}",
            ) from None
    return None


def require_plugin(kind: Kind, spec: str, built_in: tuple[str, ...]) -> tuple[Any, str]:
    """Return the plugin that a setting like "name:argument" names, and the argument."""
    name, _, argument = spec.partition(":")
    plugin = find_plugin(kind, name)
    if plugin is None:
        choices = ", ".join([*built_in, *plugin_names(kind)])
        label = kind.removesuffix("s").replace("_", " ")
        raise InvalidArgument(f"there is no {label} {spec!r}", hint=f"Use one of {choices}")
    return plugin, argument
