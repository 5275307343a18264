"""Contexts for the tests of the memory tools."""

import pytest

from memrecall.agent.tools.context import ToolContext
from memrecall.memory import Library


@pytest.fixture
def context(library: Library) -> ToolContext:
    return ToolContext.for_operator(library)
