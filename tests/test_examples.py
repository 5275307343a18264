"""The output of the examples."""

import re
import runpy
from pathlib import Path

import pytest

pytestmark = pytest.mark.docs

EXAMPLES = Path(__file__).parent.parent / "examples"
SHARED = {"history.py"}
RUN_ELSEWHERE = {"demo.py"}
INTEGRATIONS = Path(__file__).parent / "integrations"  # tests of the examples that need a framework
PEANUTS = "我对花生过敏，带花生的菜都不能点。"
SEAT = "On trains I always take a window seat in the quiet coach."


@pytest.fixture
def run(
    loaded_model: None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> "Runner":
    monkeypatch.syspath_prepend(str(EXAMPLES))
    return Runner(capsys)


class Runner:
    """Runs an example and returns the lines that it prints."""

    def __init__(self, capsys: pytest.CaptureFixture[str]) -> None:
        self._capsys = capsys

    def __call__(self, name: str) -> list[str]:
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
        return [line for line in self._capsys.readouterr().out.splitlines() if line]


def test_plain_recall(run: Runner) -> None:
    lines = run("plain_recall.py")
    allergy, seat, unknown = "\n".join(lines).split("\n  by ")[:3]
    assert f"2026-03-02 user: {PEANUTS}" in allergy
    assert f"2026-03-09 user: {SEAT}" in seat
    assert re.search(r"confidence [1-6]?\d%", unknown), "nothing is sure"
    assert all(line.endswith("→ handoff") for line in lines if line.startswith("  by "))


def test_assistant_with_context(run: Runner) -> None:
    greeting, zh, en = zip(*[iter(run("assistant_with_context.py"))] * 3, strict=True)
    assert greeting[1:] == ("recall:    not needed", "assistant: Hello! What can I do for you?")
    assert zh[1].startswith("recall:    ['lin-3'")
    assert zh[2] == f"assistant: You said: “{PEANUTS}”"
    assert en[1].startswith("recall:    ['lin-7'")
    assert en[2] == f"assistant: You said: “{SEAT}”"


@pytest.mark.concurrent
def test_recall_as_tool(run: Runner) -> None:
    seat, peanuts, answer, cancelled = run("recall_as_tool.py")
    assert "'lin-7'" in seat
    assert peanuts.startswith("recall:    ['lin-3'")
    assert answer == f"assistant: You said: “{SEAT}” “{PEANUTS}”"
    match = re.fullmatch(r"cancelled: the assistant ended after ([\d.]+) s", cancelled)
    assert match is not None
    assert float(match[1]) < 60  # the model would have taken that long


def test_memory_tools(run: Runner) -> None:
    remember_call, first, recall_call, correct_call, second, new, old = run("memory_tools.py")
    assert (remember_call, first) == ("tools:     ['remember']", "assistant: 记住了。")
    assert (recall_call, correct_call) == ("tools:     ['recall']", "tools:     ['correct']")
    assert second == "assistant: 改好了：现在是 Mac。"
    assert new == "memory:    林晓现在用 Mac (by an assistant)"
    assert old == "memory:    林晓的工作电脑是 Windows (by an assistant, superseded: 换了)"


def test_swarm(run: Runner) -> None:
    handoff, return_handoff, payload, answer = run("swarm.py")
    assert handoff == "assistant → recall"
    assert return_handoff == "recall → assistant"
    assert re.fullmatch(r"  \d\d% sure of .*\blin-7\b.*", payload)
    assert answer == "assistant: A window seat in the quiet coach, as always."


def test_selector_group_chat(run: Runner) -> None:
    allergy, answer = run("selector_group_chat.py")
    assert allergy.startswith("recall:    ['lin-3'")
    assert answer == "assistant: 花生。点菜时我会避开。"


def test_autogen_memory(run: Runner) -> None:
    added, answer, results, cleared = run("autogen_memory.py")
    assert added.startswith("recalled:  ['Lin drinks jasmine tea in the morning")
    assert answer == "assistant: You said: “Lin drinks jasmine tea in the morning, never coffee.”"
    assert "'kind': 'memory'" in results
    assert cleared == "cleared:   True"


def test_shared_space(run: Runner) -> None:
    lines = run("shared_space.py")
    assert lines[0] == "members: {'Ann': 'admin', 'Ben': 'contributor'}"
    assert lines[1].startswith("Ben cannot change what Ann said: another member wrote this")
    lisbon, porto = (
        f"  {text} (2026-05-0{day}, space: summer-trip, by {author})"
        for text, day, author in (
            ("My sister Joyce lives in Lisbon.", 2, "Ann"),
            ("My wife Joyce lives in Porto.", 3, "Ben"),
        )
    )
    assert lines[2] == "Ben asks: Where does Joyce live?"
    assert set(lines[3:5]) == {lisbon, porto}
    asked = [n for n, line in enumerate(lines) if line.endswith("Who is allergic to peanuts?")]
    own, shared = (lines[n + 1] for n in asked)
    assert own == "  I am allergic to peanuts. (2026-05-04)"
    assert shared.endswith("(2026-05-04, space: summer-trip, by Ben)")
    assert "who can see the original: user ben" in lines
    assert "who can see the copy: space summer-trip ann (admin) ben (contributor)" in lines
    assert "after demote, the copy is None" in lines
    left, unknown = (line.partition(": ")[2] for line in lines if line.startswith("Ben in "))
    assert left == unknown
    assert left.startswith("NOT_FOUND")
    assert lines[-1] == "  ben leave"


def test_autogen_space_team(run: Runner) -> None:
    lines = run("autogen_space_team.py")
    assert [line for line in lines if "share" in line] == [
        "researcher: ['share'] shared",
        "planner: ['share'] shared",
        "writer: ['share'] refused: this needs the role 'contributor' in the space, and yours is"
        " 'reader'",
    ]
    assert (
        "writer: The launch of Kiwi is on 12 June. [Researcher, space:kiwi-launch] The venue of the"
        " Kiwi launch is the Harbour Hall. [Planner, space:kiwi-launch]"
    ) in lines
    finds = [line.rpartition(" ")[2] for line in lines if "own notes" in line]
    assert finds == ["True", "False", "False"]


@pytest.mark.concurrent
def test_chat_service(run: Runner) -> None:
    import_line, *turns = run("chat_service.py")
    assert import_line == "stored:    14 messages, repeated: 0"
    peanuts, seat, passport = zip(*[iter(turns)] * 3, strict=True)
    for message, steps, answer in (peanuts, seat, passport):
        assert message.startswith("user:      ")
        assert re.fullmatch(r"recall:    search_memories (→ \w+ )*→ handoff", steps)
        assert answer.startswith("assistant: ")
    assert peanuts[2] == f"assistant: You said: “{PEANUTS}”"
    assert seat[2] == f"assistant: You said: “{SEAT}”"


def test_chat_turns(run: Runner) -> None:
    lines = run("chat_turns.py")
    answers = [line for line in lines if line.startswith(("assistant:", "小助手:"))]
    assert f"you said: “{SEAT}”" in "\n".join(lines)
    assert answers[-4:] == [
        "assistant: 你对花生过敏。 (leaks [], degraded False)",
        "assistant: Let me see.",
        f"小助手:    {answers[-2].removeprefix('小助手:').strip()}",
        "小助手:    silent True",
    ]
    assert "In Lisbon, from 4 to 6 May. (leaks ['deepseek_dsml'], degraded False)" in lines
    assert "“周五十点在大会议室开会”" in answers[-2]
    callers = [line.rpartition(" by ")[2] for line in lines if line.startswith("call:")]
    assert callers == ["the turn", "the turn", "the model", "the turn"]


def test_every_example_is_listed_and_run() -> None:
    files = {file.name for file in EXAMPLES.glob("*.py")}
    listed_files = set(re.findall(r"`(\w+\.py)`", (EXAMPLES / "README.md").read_text("utf-8")))
    assert listed_files == files
    sources = [Path(__file__), *INTEGRATIONS.glob("test_*.py")]
    source = "\n".join(file.read_text("utf-8") for file in sources)
    calls = ('run("{}")', 'run_example("{}"')
    assert {
        name
        for name in files - SHARED - RUN_ELSEWHERE
        if not any(call.format(name) in source for call in calls)
    } == set()
