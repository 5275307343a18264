from collections.abc import Iterator

import pytest

from memrecall import retries

from ...model.openai_server import ModelServer, serve


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ModelServer]:
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setattr(retries, "PAUSES", (0.01, 0.01))
    with serve() as running:
        yield running
