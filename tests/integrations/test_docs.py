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
# The test modules of the frameworks, and what they do not support.
MODULES: dict[str, tuple[str, set[str]]] = {
    "AutoGen": ("agent/test_recall_tool.py", set()),
    "Microsoft Agent Framework": ("integrations/test_agent_framework.py", set()),
    "LangGraph and LangChain": ("integrations/test_langgraph.py", set()),
    "OpenAI Agents SDK": ("integrations/test_openai_agents.py", set()),
    "LlamaIndex": ("integrations/test_llama_index.py", set()),
    "Pydantic AI": ("integrations/test_pydantic_ai.py", set()),
    "CrewAI": ("integrations/test_crewai.py", {"streaming", "cancellation"}),
}


@pytest.fixture(scope="module")
def rows() -> dict[str, list[str]]:
    """The rows of the table by the name of the framework."""
    text = (ROOT / "docs" / "integrations.md").read_text("utf-8")
    lines = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return {re.sub(r"\[(.*)\]\(.*\)", r"\1", cells[0]): cells[1:] for cells in lines}


def test_cells_say_what_the_tests_cover(rows: dict[str, list[str]]) -> None:
    assert tuple(rows["framework"][2:]) == FEATURES

    def check(framework: str) -> None:
        module, missing = MODULES[framework]
        assert rows[framework][2:] == ["no" if name in missing else "yes" for name in FEATURES]
        source = (ROOT / "tests" / module).read_text("utf-8")
        if framework not in ("AutoGen", "CrewAI"):  # their tests do not fit the contracts
            assert "(ToolContract)" in source
            assert ("(TurnContract)" in source) == (FEATURES[0] not in missing)

    check_each(MODULES, check)


def test_versions_are_the_pinned_ones(rows: dict[str, list[str]]) -> None:
    def check(framework: str) -> None:
        package, version = rows[framework][0].split()
        name = Path(MODULES[framework][0]).stem.removeprefix("test_")
        is_own = framework == "AutoGen"  # a dependency of memrecall
        pins = ROOT / "constraints.txt" if is_own else REQUIREMENTS / f"{name}.txt"
        assert f"{package}=={version}" in pins.read_text("utf-8").splitlines()

    check_each(MODULES, check)


def test_every_environment_is_pinned_and_made() -> None:
    modules = [Path(module) for module, _ in MODULES.values() if module.startswith("integrations")]
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
