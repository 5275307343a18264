"""What `Memory` answers: plain dicts, and tables in a notebook."""

import json
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memrecall import Memory
from memrecall.memory.display import (
    AddResult,
    GraphResult,
    HistoryResult,
    MemoryResult,
    SearchResults,
)

from ..inert import EVIL, assert_harmless
from .conftest import settings_for


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(settings=settings_for(str(tmp_path / "m.db")), user_id="ann") as opened:
        yield opened


def shown(answer: Any) -> str:
    return assert_harmless(answer._repr_html_()).text


def say(memory: Memory, text: str, day: int = 1) -> Any:
    said = {"role": "user", "content": text, "ts": f"2026-01-{day:02}T09:00:00Z"}
    return memory.add(said)


def test_results_equal_plain_dicts_and_lists(memory: Memory) -> None:
    added = say(memory, "I am allergic to peanuts.")
    key = added["results"][0]["id"]
    answers = [added, memory.search("peanuts"), memory.get_all(), memory.get(key)]
    answers += [memory.update(key, "Ann is allergic."), memory.history(key), memory.graph()]
    for answer in answers:
        plain = json.loads(json.dumps(answer))
        assert type(plain) in (dict, list)
        assert answer == plain
        assert repr(answer) == repr(plain)
        assert pickle.loads(pickle.dumps(answer)) == plain  # noqa: S301
        assert shown(answer)


def test_html_of_add_and_update_in_english(memory: Memory) -> None:
    assert shown(say(memory, "I live in Hamburg.")) == (
        "messages stored: 1addedUser lives in Hamburg.user — lives_in → Hamburg"
    )
    moved = say(memory, "I no longer live in Hamburg, I moved to Berlin.", 2)
    assert "updatedUser moved to Berlin.instead of: User lives in Hamburg." in shown(moved)
    assert "<s " in moved._repr_html_()  # what holds no longer is struck out
    every = memory.get_all(superseded=True)
    assert "2026-01-01 09:00user_profileUser lives in Hamburg.replaced on 2026-01-02" in shown(
        every
    )
    old = next(item for item in every["results"] if "Hamburg" in item["memory"])
    assert shown(memory.history(old["id"])).count("User lives in Hamburg.") == 3


def test_html_of_add_and_search_in_chinese(memory: Memory) -> None:
    assert shown(say(memory, "我对花生过敏。")).startswith("已保存的消息: 1新增用户对花生过敏。")
    found = shown(memory.search("花生"))
    assert found.startswith("1 条结果得分起始类型记忆")
    assert "2026-01-01 09:00user_profile用户对花生过敏。" in found


def test_html_of_graph(memory: Memory) -> None:
    say(memory, "My sister Joyce lives in Lisbon.")
    assert "user — sibling_of → JoyceJoyce — lives_in → Lisbon" in shown(memory.graph("Joyce"))
    way = "user — sibling_of → Joyce · Joyce — lives_in → Lisbon"
    assert shown(memory.graph("user", to="Lisbon")) == way
    assert shown(memory.graph("user", to="Nobody")) == "no path"
    assert shown(memory.graph()).startswith("nametypealso called")


def test_html_of_history_marks_undone_changes(memory: Memory) -> None:
    key = say(memory, "I live in Hamburg.")["results"][0]["id"]
    memory.delete(key)
    memory.undo(key)
    assert "undone" in shown(memory.history(key))


def test_html_of_empty_results_jobs_and_problems() -> None:
    assert (
        shown(SearchResults(results=[], total_found=0, message="no match"))
        == "nothing hereno match"
    )
    job = AddResult(job_id="job_1", state="running", messages=["m1"])
    assert shown(job) == "messages stored: 1 · job_1 · running"
    assert "could not" in shown(
        AddResult(results=[], messages=[], relations=[], problems=["could not"])
    )
    assert shown(GraphResult(relations=[])) == "nothing here"


def test_html_escapes_user_text(memory: Memory) -> None:
    item = memory.add(EVIL, infer=False, metadata={"said": EVIL})["results"][0]
    evil = dict.fromkeys(("name", "type", "source", "relationship", "destination"), EVIL)
    step = dict.fromkeys(("old_memory", "reason", "event", "created_at", "actor_id"), EVIL)
    answers = [
        memory.get(item["id"]),
        memory.get_all(),
        AddResult(results=[{**item, "previous_memory": EVIL, "event": EVIL}], problems=[EVIL]),
        HistoryResult([{**step, "new_memory": "x", "undone": False}]),
        GraphResult(entities=[{**evil, "aliases": [EVIL]}], relations=[evil], paths=[[evil]]),
    ]
    for answer in answers:
        assert EVIL in shown(answer)
    assert isinstance(answers[0], MemoryResult)
