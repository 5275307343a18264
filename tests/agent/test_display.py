"""Notebook views of recalls: contents, labels in both languages, escaping."""

from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from rich.cells import cell_len

from memrecall.agent import RecallResult
from memrecall.agent.result import ResolvedTime, Trace
from memrecall.agent.terminal_view import RecallView, _hit_lines
from memrecall.agent.trace import StartEvent
from memrecall.agent.views import ItemView, format_resolved_time, trace_time_zone
from memrecall.memory import Library, recall
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.testing import ScriptedClient, call, call_raw, calls, say, think
from memrecall.types import NewMessage

from ..cases import check_each
from ..inert import EVIL, assert_harmless

NOW = datetime(2026, 4, 21, 9, tzinfo=UTC)


async def recall_from_messages(
    tmp_path: Path, question: str, texts: list[str], client: Any = None, speaker: str | None = None
) -> RecallResult:
    settings = Settings(db=str(tmp_path / "chat.db"), embedder="hash")
    async with await Library.open(settings) as library:
        batch = [
            NewMessage(message_id=f"m{n}", role="user", content=text, speaker=speaker,
                       ts=datetime(2026, 4, 1 + n, 9, tzinfo=UTC))
            for n, text in enumerate(texts)
        ]  # fmt: skip
        await library.add_messages(Scope("lin", session_id="s"), batch)
        return await recall(
            question, user_id="lin", library=library, as_of=NOW, model_client=client
        )


def search(query: str) -> Any:
    return call("search_memories", query=query, min_relevance_score=0.0)


def finish(*keys: str, summary: str = "found", **extra: Any) -> Any:
    arguments = {"reason": "done", "search_summary": summary, "confidence": 0.8, **extra}
    return call("handoff", relevant_memory_keys=list(keys), **arguments)


async def test_texts_are_escaped(tmp_path: Path) -> None:
    client = ScriptedClient(
        [
            think(EVIL, search(EVIL)),
            say(EVIL),
            calls(
                call("get_memory_detail", memory_key="m1"),
                call("get_memory_detail", memory_key=EVIL),
                call_raw(EVIL, EVIL),
            ),
            *[finish("m1", EVIL, summary=EVIL, follow_up_question=EVIL, needs_more_info=True)] * 2,
        ],
        model=EVIL,
    )
    result = await recall_from_messages(
        tmp_path, EVIL + "?", ["before", EVIL, "after"], client, speaker=EVIL[:60]
    )
    assert result.memories[0].content == EVIL
    for html in (result._repr_html_(), result.trace._repr_html_()):
        assert EVIL in assert_harmless(html).text
        assert "<script" not in html
        assert "<img" not in html


@pytest.mark.parametrize(
    ("question", "texts", "labels"),
    [
        ("我对花生过敏吗？", "我对花生过敏。", ("信心度", "回忆过程", "2 步", "第 1 次迭代")),
        ("Who has the spare key?", "Joyce has the spare key.",
         ("confidence", "How it was recalled", "2 steps", "iteration 1")),
    ],
)  # fmt: skip
async def test_labels_use_the_language_of_the_request(
    tmp_path: Path, question: str, texts: str, labels: tuple[str, ...]
) -> None:
    result = await recall_from_messages(tmp_path, question, [texts])
    page = assert_harmless(result._repr_html_())
    for label in (*labels, question, texts):
        assert label in page.text, label
    assert {"details", "summary"} <= page.tags
    trace = assert_harmless(result.trace._repr_html_())
    assert question in trace.text
    assert labels[3] in trace.text
    assert "search_memories" in trace.text


async def test_evidence_is_shown_between_its_neighbors_with_dates(tmp_path: Path) -> None:
    client = ScriptedClient(
        [search("vet"), finish("m1", summary="The vet.\n- quoted: “we saw the vet yesterday”")]
    )
    texts = ["just before", "we saw the vet yesterday", "just after"]
    result = await recall_from_messages(tmp_path, "vet?", texts, client)
    page = assert_harmless(result._repr_html_())
    head = page.text[: page.text.index("How it was recalled")]
    assert [head.index(text) for text in texts] == sorted(head.index(text) for text in texts)
    assert "yesterday = 2026-04-01" in head
    assert "quoted" not in head  # text shown as evidence is not repeated
    assert "0.80" in head


async def test_abstention_shows_its_question(tmp_path: Path) -> None:
    step = finish(needs_more_info=True, follow_up_question="When was it?")
    client = ScriptedClient([search("x"), step])
    result = await recall_from_messages(tmp_path, "x?", ["a"], client)
    page = assert_harmless(result._repr_html_())
    assert "nothing relevant was found" in page.text
    assert "When was it?" in page.text


async def test_long_text_is_truncated(tmp_path: Path) -> None:
    client = ScriptedClient([search("tea"), finish("m0")])
    result = await recall_from_messages(tmp_path, "tea?", ["tea " + "x" * 50_000], client)
    assert len(result._repr_html_()) < 20_000
    assert "50,004 characters in all" in result._repr_html_()


async def test_failures_and_remarks_are_shown(tmp_path: Path) -> None:
    client = ScriptedClient([search("tea is hot"), say("a"), say("b")])
    result = await recall_from_messages(tmp_path, "tea?", ["tea is hot"], client)
    page = assert_harmless(result._repr_html_())
    assert "corrected (text_answer)" in page.text
    assert "did not do what the tools require (text_answer)" in page.text


def span(start: str | None, end: str | None) -> ResolvedTime:
    parse = datetime.fromisoformat
    return ResolvedTime(words="then", start=start and parse(start), end=end and parse(end))


TIMES = (
    (span("2026-03-01T00:00+00:00", "2026-03-02T00:00+00:00"), "2026-03-01"),
    (span("2026-03-01T00:00+00:00", "2026-04-01T00:00+00:00"), "2026-03-01 – 2026-03-31"),
    (span("2026-03-01T05:00+00:00", "2026-03-01T12:00+00:00"), "2026-03-01 05:00 – 12:00"),
    (
        span("2026-03-01T22:00+00:00", "2026-03-02T02:00+00:00"),
        "2026-03-01 22:00 – 2026-03-02 02:00",
    ),
    (span("2026-03-01T18:30+00:00", "2026-03-01T18:31+00:00"), "2026-03-01 18:30"),
    (span("2026-03-01T00:00+00:00", None), "2026-03-01 –"),
    (span(None, "2026-03-01T00:00+00:00"), "– 2026-03-01"),
)


def test_resolved_times_use_the_shortest_form() -> None:
    def check(case: tuple[ResolvedTime, str]) -> None:
        time, expected = case
        assert format_resolved_time(time, UTC) == expected

    check_each(TIMES, check)


def test_resolved_times_use_the_users_zone() -> None:
    start = StartEvent(now="2026-04-21T17:00:00+08:00")
    zone = trace_time_zone(Trace("tr_1", NOW, (start,)))
    assert zone.utcoffset(NOW) == timedelta(hours=8)
    assert (
        format_resolved_time(span("2026-02-28T16:00+00:00", "2026-03-01T16:00+00:00"), zone)
        == "2026-03-01"
    )
    assert trace_time_zone(Trace("tr_1", NOW, ())) is UTC


def test_terminal_view_keeps_who_wrote_a_message() -> None:
    def item(label: str) -> ItemView:
        return ItemView("m1", "message", label, "2026-01-01 10:00", "budget: nine millions. " * 9)

    names = [
        "Ann (written by Ben)",
        f"{'Alexandra ' * 20}(written by Ben)",
        "小波 (written by ann)",
    ]
    lines = [line.plain for line in _hit_lines(map(item, [*names, "Cleo"]), 76)]
    neighbour = RecallView(80)._neighbor(item(names[1])).plain
    assert all("(written by " in line and "budget" in line for line in [*lines[:3], neighbour])
    assert "Alexandra Al (written by Ben)" in lines[1]
    assert len({cell_len(line[: line.index("budget")]) for line in lines}) == 1
