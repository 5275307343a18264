"""The table in docs/integrations.md: every cell has a test, every version is the pinned one."""

import re
import tomllib
from importlib import import_module
from pathlib import Path

import pytest

from ..cases import check_each

ROOT = Path(__file__).parents[2]
REQUIREMENTS = ROOT / "tests" / "integrations" / "requirements"
PACKAGE = ROOT / "memrecall" / "integrations"
EXTRAS = "optional-dependencies"
FEATURES = (
    "recall before the turn",
    "recall as tool",
    "remember",
    "streaming",
    "cancellation",
    "replay",
)
# The module of a framework's tests, and the test behind each feature; None: not supported.
TESTS: dict[str, tuple[str, tuple[str | None, ...]]] = {
    "AutoGen": (
        "agent/test_recall_tool.py",
        (
            "agent/test_context.py::test_parent_receives_the_recalled_block",
            "test_recall_tool_returns_evidence",
            "agent/test_memory_tools.py::test_remember_records_the_assistant_as_origin",
            "test_parent_stream_contains_recall_events",
            "test_cancelled_parent_stops_immediately",
            "agent/test_cassettes.py::test_every_cassette_replays_to_its_trace",
        ),
    ),
    "Microsoft Agent Framework": (
        "integrations/test_agent_framework.py",
        (
            "test_recalls_before_the_turn",
            "test_recall",
            "test_stores_the_turn_once",
            "test_recalls_before_the_turn",
            "test_cancelled_run_ends_the_recall",
            "test_recall_can_be_replayed",
        ),
    ),
    "LangGraph and LangChain": (
        "integrations/test_langgraph.py",
        (
            "test_recalls_before_the_answer",
            "test_tool_node",
            "test_block_is_replaced_and_the_turn_stored",
            "test_steps_are_streamed",
            "test_cancelled_graph_ends_the_recall",
            "test_recall_can_be_replayed",
        ),
    ),
    "OpenAI Agents SDK": (
        "integrations/test_openai_agents.py",
        (
            "test_recalls_before_the_turn",
            "test_recall",
            "test_items_survive_and_are_recalled",
            "test_recalls_before_the_turn",
            "test_cancelled_run_ends_the_recall",
            "test_recall_can_be_replayed",
        ),
    ),
    "LlamaIndex": (
        "integrations/test_llama_index.py",
        (
            "test_recalls_before_the_turn",
            "test_recall",
            "test_messages_that_leave_the_history_are_stored",
            "test_recalls_before_the_turn",
            "test_cancelled_run_ends_the_recall",
            "test_recall_can_be_replayed",
        ),
    ),
    "Pydantic AI": (
        "integrations/test_pydantic_ai.py",
        (
            None,
            "test_recall",
            "test_remember_writes_for_the_bound_user",
            "test_streamed_run",
            "test_cancelled_run_ends_the_recall",
            "test_recall_can_be_replayed",
        ),
    ),
    "CrewAI": (
        "integrations/test_crewai.py",
        (
            "test_recalls_before_a_task_and_stores_its_result",
            "test_recall",
            "test_recalls_before_a_task_and_stores_its_result",
            None,
            None,
            "test_recall_can_be_replayed",
        ),
    ),
}


@pytest.fixture(scope="module")
def rows() -> dict[str, list[str]]:
    """The rows of the table by the name of the framework."""
    text = (ROOT / "docs" / "integrations.md").read_text("utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {re.sub(r"\[(.*)\]\(.*\)", r"\1", cells[0]): cells[1:] for cells in lines}


def exists(test: str, module: str) -> bool:
    """Return True if a test, `name` or `module::name`, is defined."""
    *other, name = test.split("::")
    source = (ROOT / "tests" / (other[0] if other else module)).read_text("utf-8")
    return f"def {name}(" in source


def test_cells_have_tests(rows: dict[str, list[str]]) -> None:
    assert tuple(rows["framework"][2:]) == FEATURES

    def check(framework: str) -> None:
        module, tests = TESTS[framework]
        assert rows[framework][2:] == ["no" if test is None else "yes" for test in tests]
        assert [test for test in tests if test and not exists(test, module)] == []

    check_each(TESTS, check)


def test_versions_are_the_pinned_ones(rows: dict[str, list[str]]) -> None:
    def check(framework: str) -> None:
        package, version = rows[framework][0].split()
        name = Path(TESTS[framework][0]).stem.removeprefix("test_")
        is_own = framework == "AutoGen"  # a dependency of memrecall
        pins = ROOT / "constraints.txt" if is_own else REQUIREMENTS / f"{name}.txt"
        assert f"{package}=={version}" in pins.read_text("utf-8").splitlines()

    check_each(TESTS, check)


def test_every_environment_is_pinned_and_made() -> None:
    modules = [Path(module) for module, _ in TESTS.values() if module.startswith("integrations")]
    names = {module.stem.removeprefix("test_") for module in modules}
    assert {file.stem for file in REQUIREMENTS.iterdir()} == names
    (made,) = re.findall(r"^INTEGRATIONS := (.*)$", (ROOT / "Makefile").read_text("utf-8"), re.M)
    assert set(made.split()) == names


def test_missing_framework_names_its_extra() -> None:
    extras = set(tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"][EXTRAS])
    modules = {file.stem for file in PACKAGE.glob("*.py")} - {"__init__", "agent_memory"}

    def check(module: str) -> None:
        try:
            import_module(f"memrecall.integrations.{module}")
        except ImportError as error:
            hint = re.search(r"pip install 'memrecall-agent\[(.*)\]'$", str(error))
            assert hint
            assert hint[1] in extras

    check_each(sorted(modules), check)
