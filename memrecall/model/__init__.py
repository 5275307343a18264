"""Model clients, prompts, the offline client, cassettes and structured answers.

The names are loaded on first use.
"""

from typing import TYPE_CHECKING

from memrecall.lazy import lazy_exports

if TYPE_CHECKING:
    from memrecall.model.cassette import RecordingClient, ReplayClient
    from memrecall.model.client import BaseClient, Request, RuleClient, SchemaTool
    from memrecall.model.openai_client import make_client

__all__ = [
    "BaseClient",
    "RecordingClient",
    "ReplayClient",
    "Request",
    "RuleClient",
    "SchemaTool",
    "make_client",
]

__getattr__ = lazy_exports(
    __name__,
    {
        ".cassette": ("RecordingClient", "ReplayClient"),
        ".client": ("BaseClient", "Request", "RuleClient", "SchemaTool"),
        ".openai_client": ("make_client",),
    },
)
