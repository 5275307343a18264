"""The demo's chat, and what a newcomer sees of it in the terminal."""

import re
import shlex
import shutil
import subprocess
import sys
from collections import defaultdict
from datetime import UTC, datetime
from pathlib import Path

import pytest
from rich.cells import cell_len

from memrecall.memory.importing import read_entry
from memrecall.store import Entry

ROOT = Path(__file__).resolve().parent.parent
CHAT = Path("fixtures/demo/chat.jsonl")
DEMO = Path("examples/demo.py")

FORBIDDING = '"连接池" AND NOT 测试'
# Where two messages answer equally well, either may come first.
FIRST_HITS = {
    "吃素还是吃鱼？": {"maya-070", "maya-071"},
    "db_config_001": {"lin-060", "lin-061"},
    "Why did Biscuit see the vet in March?": {"maya-043", "maya-047"},
    FORBIDDING: {"lin-005", "lin-055", "lin-058"},
    "媽媽的生日禮物": {"lin-036", "lin-041"},
}
NEVER_SAID = "When does my passport expire?"

Hits = list[tuple[float, str]]


def read_chat() -> dict[str, list[Entry]]:
    """The entries of each user."""
    chats: dict[str, list[Entry]] = defaultdict(list)
    for line in (ROOT / CHAT).read_bytes().splitlines():
        entry = read_entry(line)
        chats[entry.scope.user_id].append(entry)
    return chats


def run(command: list[str], folder: Path) -> str:
    done = subprocess.run(
        command, cwd=folder, capture_output=True, encoding="utf-8", timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the demo needs, so that the `.demo/` of the repository stays as it is."""
    copy = tmp_path_factory.mktemp("demo")
    for file in (CHAT, DEMO):
        (copy / file).parent.mkdir(parents=True)
        shutil.copy(ROOT / file, copy / file)
    for other in ("elsewhere", ".demo"):
        (copy / other).mkdir()
    (copy / ".demo" / "memrecall.db").write_text("left over from an earlier run")
    return copy


@pytest.fixture(scope="module")
def shown(folder: Path) -> str:
    """What the demo prints, started from a folder that is not the repository's."""
    return run([sys.executable, str(folder / DEMO)], folder / "elsewhere")


def read_hits(shown: str) -> dict[str, Hits]:
    """The hits under each question, as they were printed."""
    hits: dict[str, Hits] = {}
    question = ""
    for line in shown.splitlines():
        if asked := re.fullmatch(r"\d  (.+)", line):
            question = asked[1]
            hits[question] = []
        elif hit := re.fullmatch(r"   (\d\.\d\d) [━─]+  .+  ([a-z]+-\d{3})", line):
            hits[question].append((float(hit[1]), hit[2]))
    return hits


def test_chat_has_two_users_with_four_months_each() -> None:
    chats = read_chat()
    assert set(chats) == {"lin", "maya"}
    assert sum(map(len, chats.values())) >= 150
    for entries in chats.values():
        times = [entry.message.ts for entry in entries if entry.message.ts]
        assert len(times) == len(entries)
        assert times == sorted(times)
        assert datetime(2026, 1, 1, tzinfo=UTC) < times[0] < times[-1]
        assert times[-1] < datetime(2026, 5, 1, tzinfo=UTC)
        assert (times[-1] - times[0]).days > 90
        assert 8 <= len({entry.scope.session_id for entry in entries}) <= 12


def test_chat_ids_are_unique_per_user() -> None:
    for user, entries in read_chat().items():
        ids = [entry.message.message_id for entry in entries]
        assert ids == [f"{user}-{number:03}" for number in range(1, len(ids) + 1)]


def test_chat_is_in_both_languages_and_of_varied_length() -> None:
    chats = read_chat()
    chinese = [e for e in chats["lin"] if re.search("[\u4e00-\u9fff]", e.message.content)]
    english = [e for e in chats["maya"] if e.message.content.isascii()]
    assert len(chinese) > 0.9 * len(chats["lin"])
    assert len(english) > 0.9 * len(chats["maya"])
    for entries in chats.values():
        lengths = [len(entry.message.content) for entry in entries]
        assert 5 <= min(lengths) < 20
        assert 100 < max(lengths) <= 200


def test_chat_is_written_in_plain_characters() -> None:
    assert "\\u" not in (ROOT / CHAT).read_text("utf-8")


def test_demo_finds_what_was_said_and_shows_what_was_not(shown: str) -> None:
    assert re.search(r"^\d+ messages of 2 users imported and embedded in \d", shown, re.MULTILINE)
    hits = read_hits(shown)
    assert list(hits) == [*FIRST_HITS, NEVER_SAID]
    for question, expected in FIRST_HITS.items():
        assert hits[question][0][1] in expected, question
    assert {key for _, key in hits[FORBIDDING]} == FIRST_HITS[FORBIDDING]
    scores = {question: found[0][0] for question, found in hits.items()}
    assert scores.pop(NEVER_SAID) < 0.5 < min(scores.values())
    assert shown.count("perhaps never said") == 1
    assert_plain(shown.partition("Go on with")[0])


def assert_plain(text: str) -> None:
    """No colours where there is no terminal, and nothing beyond 100 columns."""
    assert "\x1b" not in text
    assert max(map(cell_len, text.splitlines())) <= 100


def test_demo_commands_work_as_printed(shown: str, folder: Path) -> None:
    _, _, commands = shown.partition("Go on with\n")
    printed = [shlex.split(line) for line in commands.splitlines()]
    gift, light, around = (run(command, folder / "elsewhere") for command in printed)
    assert "lin-036" in gift
    assert "facing north" not in light  # the phrase is "north light"
    assert {"maya-007", "maya-028"} <= set(re.findall(r"maya-\d+", light))
    assert "lin-059" in around
    assert "lin-061" in around
