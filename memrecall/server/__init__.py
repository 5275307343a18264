"""The surfaces: HTTP, JSON-RPC and MCP. Thin: no logic here.

JSON-RPC over stdio needs no web framework; what does loads when it is first asked for.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.server.http.app import create_app
    from memrecall.server.running import run_server

__all__ = ["create_app", "run_server"]

__getattr__ = lazy_exports(
    __name__,
    {
        ".http.app": ("create_app",),
        ".running": ("run_server",),
    },
)
