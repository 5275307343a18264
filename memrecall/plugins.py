"""Parts that third parties bring: named by a setting, found by an entry point, loaded when needed.

A package offers one in its `pyproject.toml`:

    [project.entry-points."memrecall.embedders"]
    acme = "acme_memrecall:make_embedder"

and `MEMRECALL_EMBEDDER=acme:large` has `make_embedder` called.
"""

from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from memrecall.errors import InvalidArgument

Kind = Literal["embedders", "models", "graph_dbs", "vector_dbs", "rerankers"]

_PREFIX = "memrecall."


def plugin_names(kind: Kind) -> list[str]:
    """The names of all plugins of a kind that are installed."""
    return sorted({point.name for point in entry_points(group=_PREFIX + kind)})


def find_plugin(kind: Kind, name: str) -> Any | None:
    """What the entry point of that name offers, loaded now; None if nobody offers it."""
    found = list(entry_points(group=_PREFIX + kind, name=name))
    if not found:
        return None
    return _load(kind, found[0])


def require_plugin(kind: Kind, spec: str, built_in: tuple[str, ...]) -> tuple[Any, str]:
    """The plugin that a setting like "name:argument" names, and the argument."""
    name, _, argument = spec.partition(":")
    made = find_plugin(kind, name)
    if made is None:
        known = ", ".join([*built_in, *plugin_names(kind)])
        what = kind.removesuffix("s").replace("_", " ")
        raise InvalidArgument(f"there is no {what} {spec!r}", hint=f"Choose of {known}")
    return made, argument


def _load(kind: Kind, point: EntryPoint) -> Any:
    try:
        return point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidArgument(
            f"the plugin {point.name!r} of {_PREFIX}{kind} cannot be loaded: {error}",
            hint=f"It is {point.value}: check its package",
        ) from None
