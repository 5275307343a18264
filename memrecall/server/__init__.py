"""The surfaces: HTTP, JSON-RPC and MCP. Thin: no logic here.

JSON-RPC over stdio needs no web framework; what does loads when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from memrecall.server.app import create_app
    from memrecall.server.running import run_server

__all__ = ["create_app", "run_server"]

_HOMES = {"create_app": "app", "run_server": "running"}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
