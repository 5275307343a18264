"""Model clients, prompts, the offline client, cassettes and structured answers.

The names are loaded on first use.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.model.cassette import RecordingClient, ReplayClient
    from memrecall.model.client import Request
    from memrecall.model.servers import make_client

__all__ = ["RecordingClient", "ReplayClient", "Request", "make_client"]

__getattr__ = lazy_exports(
    __name__,
    {
        ".cassette": ("RecordingClient", "ReplayClient"),
        ".client": ("Request",),
        ".servers": ("make_client",),
    },
)
