"""Results of `Memory`: plain dicts that notebooks show as tables."""

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
from .conftest import make_settings


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(settings=make_settings(str(tmp_path / "m.db")), user_id="ann") as sync_memory:
        yield sync_memory


def html_text(answer: Any) -> str:
    return assert_harmless(answer._repr_html_()).text


def add_message(memory: Memory, text: str, day: int = 1) -> Any:
    message = {"role": "user", "content": text, "ts": f"2026-01-{day:02}T09:00:00Z"}
    return memory.add(message)


def test_results_equal_plain_dicts_and_lists(memory: Memory) -> None:
    result = add_message(memory, "I am allergic to peanuts.")
    key = result["results"][0]["id"]
    answers = [result, memory.search("peanuts"), memory.get_all(), memory.get(key)]
    answers += [memory.update(key, "Ann is allergic."), memory.history(key), memory.graph()]
    for answer in answers:
        plain = json.loads(json.dumps(answer))
        assert type(plain) in (dict, list)
        assert answer == plain
        assert repr(answer) == repr(plain)
        assert pickle.loads(pickle.dumps(answer)) == plain  # noqa: S301
        assert html_text(answer)


def test_html_of_add_and_update_in_english(memory: Memory) -> None:
    assert html_text(add_message(memory, "I live in Hamburg.")) == (
        "messages stored: 1addedUser lives in Hamburg.user — lives_in → Hamburg"
    )
    update = add_message(memory, "I no longer live in Hamburg, I moved to Berlin.", 2)
    assert "updatedUser moved to Berlin.instead of: User lives in Hamburg." in html_text(update)
    assert "<s " in update._repr_html_()  # superseded text is struck out
    listing = memory.get_all(superseded=True)
    assert "2026-01-01 09:00user_profileUser lives in Hamburg.replaced on 2026-01-02" in html_text(
        listing
    )
    old = next(item for item in listing["results"] if "Hamburg" in item["memory"])
    assert html_text(memory.history(old["id"])).count("User lives in Hamburg.") == 3


def test_html_of_add_and_search_in_chinese(memory: Memory) -> None:
    assert html_text(add_message(memory, "我对花生过敏。")).startswith(
        "已保存的消息: 1新增用户对花生过敏。"
    )
    text = html_text(memory.search("花生"))
    assert text.startswith("1 条结果得分起始类型记忆")
    assert "2026-01-01 09:00user_profile用户对花生过敏。" in text


def test_html_of_graph(memory: Memory) -> None:
    add_message(memory, "My sister Joyce lives in Lisbon.")
    assert "user — sibling_of → JoyceJoyce — lives_in → Lisbon" in html_text(memory.graph("Joyce"))
    path = "user — sibling_of → Joyce · Joyce — lives_in → Lisbon"
    assert html_text(memory.graph("user", to="Lisbon")) == path
    assert html_text(memory.graph("user", to="Nobody")) == "no path"
    assert html_text(memory.graph()).startswith("nametypealso called")


def test_html_of_history_marks_undone_changes(memory: Memory) -> None:
    key = add_message(memory, "I live in Hamburg.")["results"][0]["id"]
    memory.delete(key)
    memory.undo(key)
    assert "undone" in html_text(memory.history(key))


def test_html_of_empty_results_jobs_and_problems() -> None:
    assert (
        html_text(SearchResults(results=[], total_found=0, message="no match"))
        == "nothing hereno match"
    )
    job = AddResult(job_id="job_1", state="running", messages=["m1"])
    assert html_text(job) == "messages stored: 1 · job_1 · running"
    assert "could not" in html_text(
        AddResult(results=[], messages=[], relations=[], problems=["could not"])
    )
    assert html_text(GraphResult(relations=[])) == "nothing here"


def test_html_escapes_user_text(memory: Memory) -> None:
    item = memory.add(EVIL, infer=False, metadata={"said": EVIL})["results"][0]
    row = dict.fromkeys(("name", "type", "source", "relationship", "destination"), EVIL)
    step = dict.fromkeys(("old_memory", "reason", "event", "created_at", "actor_id"), EVIL)
    answers = [
        memory.get(item["id"]),
        memory.get_all(),
        AddResult(results=[{**item, "previous_memory": EVIL, "event": EVIL}], problems=[EVIL]),
        HistoryResult([{**step, "new_memory": "x", "undone": False}]),
        GraphResult(entities=[{**row, "aliases": [EVIL]}], relations=[row], paths=[[row]]),
    ]
    for answer in answers:
        assert EVIL in html_text(answer)
    assert isinstance(answers[0], MemoryResult)
