from collections.abc import Iterator

import pytest
from autogen_core.tools import FunctionTool

from memrecall import retries

from .openai_server import ModelServer, serve


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(retries, "PAUSES", (0.01, 0.01))
    with serve() as running:
        yield running


async def search(query: str) -> str:
    """Search the memories."""
    return f"nothing about {query}"


async def handoff(summary: str, confidence: float = 0.5) -> str:
    """End the recall."""
    return f"{summary} {confidence}"


@pytest.fixture
def tools() -> tuple[FunctionTool, FunctionTool]:
    return (
        FunctionTool(search, description="Search the memories."),
        FunctionTool(handoff, description="End the recall."),
    )
