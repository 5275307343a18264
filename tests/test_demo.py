"""The terminal output of the demo."""

import re
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from rich.cells import cell_len

ROOT = Path(__file__).resolve().parent.parent
CHAT = Path("fixtures/demo/chat.jsonl")
DEMO = Path("examples/demo.py")

# The message that answers each request. It is among those handed off.
ANSWERS = {
    "我对什么过敏来着？": "lin-030",
    "那个端口为什么不用默认的？": "lin-003",
    "Who has my spare key?": "maya-051",
    "that flat with the north light, what was the catch?": "maya-058",
}
FACTS = {  # the first item of a recall with facts
    "谁接手赵磊的工作？": "何婧接手赵磊的工作，监控和值班都归何婧。",
    "What does Maya eat?": "Maya eats fish again, but no meat.",
}
OUTDATED = {
    "林晓用的编辑器是 VS Code。": ("2026-04-03", "林晓从 VS Code 换到了 Neovim。"),
    "Maya has been vegetarian since university.": (
        "2026-03-28",
        "Maya eats fish again, but no meat.",
    ),
}
UNANSWERABLE = {"我的护照什么时候到期？", "When does my passport expire?"}


def run(command: list[str], folder: Path) -> str:
    process = subprocess.run(
        command, cwd=folder, capture_output=True, encoding="utf-8", check=False
    )
    assert process.returncode == 0, process.stderr
    return process.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the demo's files, so that the repository's `.demo/` is not changed."""
    copy = tmp_path_factory.mktemp("demo")
    for file in (CHAT, DEMO):
        (copy / file).parent.mkdir(parents=True)
        shutil.copy(ROOT / file, copy / file)
    for other in ("elsewhere", ".demo"):
        (copy / other).mkdir()
    (copy / ".demo" / "memrecall.db").write_text("left over from an earlier run")
    return copy


@pytest.fixture(scope="module")
def demo_output(folder: Path) -> str:
    """The output of the demo, run from another folder."""
    return run([sys.executable, str(folder / DEMO)], folder / "elsewhere")


@dataclass
class PrintedRecall:
    """The output of one recall."""

    lines: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    confidence: float | None = None


def read_recalls(demo_output: str) -> dict[str, PrintedRecall]:
    """Return the output of each request."""
    recalls: dict[str, PrintedRecall] = {}
    recall = PrintedRecall()
    for line in demo_output.splitlines():
        if request := re.fullmatch(r" \?  (.+)", line):
            recall = recalls.setdefault(request[1], PrintedRecall())
        elif evidence := re.fullmatch(r" \d  .+  ([a-z]+-\d{3})(  \d\.\d\d)?", line):
            recall.keys.append(evidence[1])
        elif bar := re.match(r"    (\d\.\d\d) [━─]+  ", line):
            recall.confidence = float(bar[1])
        recall.lines.append(line)
    return recalls


@pytest.mark.docs
@pytest.mark.concurrent
def test_demo_prints_evidence_or_follow_up_question(demo_output: str) -> None:
    assert re.search(
        r"^\d+ messages of 2 users imported and embedded in \d", demo_output, re.MULTILINE
    )
    recalls = read_recalls(demo_output)
    assert recalls.keys() == ANSWERS.keys() | FACTS.keys() | UNANSWERABLE
    for request, answer in ANSWERS.items():
        assert answer in recalls[request].keys, request
        assert len(recalls[request].keys) <= 4
        assert (recalls[request].confidence or 0) >= 0.2
    for request in UNANSWERABLE:
        assert (recalls[request].confidence or 0) < 0.3, request
        text = "\n".join(recalls[request].lines)
        assert "  possible: " in text or "nothing handed off" in text, request
    assert_plain(demo_output.partition("Try next")[0])


@pytest.mark.docs
@pytest.mark.concurrent
def test_demo_shows_what_a_recorded_model_found(demo_output: str) -> None:
    assert "They come from a recorded model; with your own: MEMRECALL_MODEL=…" in demo_output
    for text, (since, successor) in OUTDATED.items():
        assert f"    {text}  outdated since {since}\n    → {successor}\n" in demo_output
    assert demo_output.count("outdated since") == 4  # and no others
    assert "Maya owns Biscuit" in demo_output
    for request, fact in FACTS.items():
        first = "\n".join(read_recalls(demo_output)[request].lines).split("\n 1  ")[1]
        assert "  mem_" in first.splitlines()[0]
        assert f"    │ {fact}\n" in first.partition("\n 2  ")[0]


@pytest.mark.docs
@pytest.mark.concurrent
def test_demo_prints_each_call_on_one_line(demo_output: str) -> None:
    for request, recall in read_recalls(demo_output).items():
        calls = [line for line in recall.lines if "▸" in line]
        assert calls, request
        assert all(re.match(r"    ▸ [a-z_]+ ", line) for line in calls)


def assert_plain(text: str) -> None:
    """Check that there are no colours, and no lines longer than 100 columns."""
    assert "\x1b" not in text
    assert max(map(cell_len, text.splitlines())) <= 100


@pytest.mark.docs
@pytest.mark.concurrent
@pytest.mark.timeout(600)  # starts a process for each command, one after the other
def test_printed_commands_work(demo_output: str, folder: Path) -> None:
    _, _, commands = demo_output.partition("Try next\n")
    parsed = [shlex.split(line) for line in commands.splitlines()]
    release, last, light, around = (run(command, folder / "elsewhere") for command in parsed)
    (recalled,) = read_recalls(release).values()
    assert "KeyError: 'S3_REGION'" in release
    assert len(recalled.keys) <= 4
    assert last == release  # `--last` shows the recall just made
    assert "facing north" not in light  # the phrase is "north light"
    assert {"maya-007", "maya-028"} <= set(re.findall(r"maya-\d+", light))
    assert "lin-059" in around
    assert "lin-061" in around
