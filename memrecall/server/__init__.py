"""The network interfaces: HTTP, JSON-RPC and MCP.

Names are loaded on first use, because JSON-RPC over stdio needs no web framework.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.server.http.app import create_app
    from memrecall.server.runner import run_server

__all__ = ["create_app", "run_server"]

__getattr__ = lazy_exports(
    __name__,
    {
        ".http.app": ("create_app",),
        ".runner": ("run_server",),
    },
)
