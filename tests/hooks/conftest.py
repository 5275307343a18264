"""Fixtures of the tests of hooks."""

import pytest

from memrecall.agent import result as agent_result


@pytest.fixture
def is_sure(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make whatever is recalled sure, for tests of something else than the ranking."""
    monkeypatch.setattr(agent_result, "_SURE", 0.1)
