"""Settings of the AutoGen classes as data, for `dump_component` and `load_component`.

A configuration names no database, user or key: it refers to a binding, which trusted code makes
with `bind_components` around the loading.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, Field

from memrecall.agent.driver import RecallOptions
from memrecall.agent.offline.needs import RecallWhen
from memrecall.agent.prompt_view import BLOCK_CHARACTERS
from memrecall.errors import InvalidArgument
from memrecall.library.library import Library
from memrecall.messages import USER_SOURCES
from memrecall.scope import Scope

DEFAULT_BINDING = "default"

_bindings: ContextVar[Mapping[str, Mapping[str, Any]]] = ContextVar(
    "memrecall_bindings", default=MappingProxyType({})
)


class RecallConfig(BaseModel):
    """The settings that all classes have, and the name of their binding."""

    model_config = ConfigDict(extra="forbid")

    binding: str = DEFAULT_BINDING
    options: RecallOptions = Field(default_factory=RecallOptions)


class ReaderConfig(RecallConfig):
    """The settings of classes that read a conversation."""

    user_sources: list[str] = Field(default_factory=lambda: list(USER_SOURCES))
    block_characters: int = BLOCK_CHARACTERS


class BlockConfig(ReaderConfig):
    """The settings of classes that recall before a turn of their parent."""

    when: RecallWhen = "auto"


@contextmanager
def bind_components(
    library: Library, scope: Scope, *, name: str = DEFAULT_BINDING, **arguments: Any
) -> Iterator[None]:
    """Bind the library and the scope of components that are loaded in this block.

    `arguments` are what a configuration cannot hold: `model_client`, `clock`, `as_of` and
    `observer`. A component's setting `binding` is the name.
    """
    known = {"model_client", "clock", "as_of", "observer"}
    if unknown := sorted(arguments.keys() - known):
        hint = f"Use {', '.join(sorted(known))}"
        raise InvalidArgument(f"components cannot be bound to {', '.join(unknown)}", hint=hint)
    binding = {"library": library, "scope": scope, **arguments}
    token = _bindings.set({**_bindings.get(), name: binding})
    try:
        yield
    finally:
        _bindings.reset(token)


def find_binding(name: str) -> Mapping[str, Any]:
    """Return the arguments that trusted code has bound to a name."""
    binding = _bindings.get().get(name)
    if binding is None:
        raise InvalidArgument(
            f"there is no binding {name!r} for a component of memrecall",
            hint="Load it inside `with bind_components(library, scope):`",
        )
    return binding


class RecallComponent:
    """Mixin of the classes whose settings are one configuration."""

    _config: Any

    def _to_config(self) -> Any:
        return self._config

    @classmethod
    def _from_config(cls, config: Any) -> Self:
        binding = find_binding(config.binding)
        fields = type(config).model_fields.keys() - {"binding"}
        component = cls(**binding, **{name: getattr(config, name) for name in fields})
        component._config = config
        return component
