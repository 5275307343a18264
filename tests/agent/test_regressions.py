"""Regression tests for known mistakes of recall loops."""

import os
import re
import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest

from memrecall.agent import Recaller, StopReason
from memrecall.agent.blocks import write_block
from memrecall.agent.phrases import say_codes
from memrecall.agent.tools.models import ToolErrorCode
from memrecall.budget import Limit, Limits
from memrecall.errors import StorageError
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.testing import ScriptedClient, calls, fail, say
from memrecall.types import NewMessage, Role

from ..cases import check_each, check_each_async
from .recall_helpers import (
    ANN,
    LIN,
    NOW,
    REQUEST,
    REQUEST_ZH,
    add_memory,
    detail,
    hand_off,
    on_both_engines,
    run_recall,
    search,
    tool_results,
)


async def test_results_have_content_and_date(library: Library) -> None:
    await add_memory(library, "bare", "database")
    recall = await run_recall(library, search(limit=10), detail("bare"), hand_off("bare"))
    hits = tool_results(recall)[0]["output"]["results"]
    assert {"bare", "a1", "pref"} <= {item["memory_key"] for item in hits}
    for item in hits:
        assert item["content_preview"].strip()
        assert datetime.fromisoformat(item["created_at"]).tzinfo
    text = tool_results(recall)[0]["text"]
    assert "N/A" not in text
    assert "null" not in text


async def test_empty_first_search_continues(library: Library) -> None:
    steps = [search("zqx", search_mode="keyword"), search(), hand_off("a1")]
    recall = await run_recall(library, *steps)
    assert [query.total_found > 0 for query in recall.queries] == [False, True]
    assert recall.handoff.relevant_memory_keys == ["a1"]


async def test_failure_is_not_reported_as_no_result(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def broken(*_: object) -> None:
        raise StorageError("the disk is gone")

    monkeypatch.setattr(Library, "search", broken)
    for scope, request, words in (
        (ANN, REQUEST, "could not be searched"),
        (LIN, REQUEST_ZH, "无法搜索"),
    ):
        recall = await Recaller(library, scope, clock=lambda: NOW).recall(request)
        assert not recall.abstained
        assert not recall.memories
        assert not recall.handoff.success or recall.handoff.search_summary
        text = recall.handoff.search_summary + write_block(recall)
        assert words in text or "fail" in text.lower() or "失败" in text


async def test_handoff_with_evidence_is_not_abstention(library: Library) -> None:
    recall = await run_recall(
        library, search(), hand_off("a1", needs_more_info=True, follow_up_question="This one?")
    )
    assert not recall.abstained
    assert recall.handoff.follow_up_question == "This one?"


class TestDates:
    async def test_relative_dates_are_resolved(self, library: Library) -> None:
        message = NewMessage(
            message_id="trip",
            role=Role.USER,
            content="We bought the boat last year",
            ts=datetime(2023, 5, 2, tzinfo=UTC),
        )
        await library.add_messages(ANN, [message])
        recall = await run_recall(library, search("boat"), hand_off("trip"))
        (time,) = [t for t in recall.memories[0].times if t.words == "last year"]
        assert time.start == datetime(2022, 1, 1, tzinfo=UTC)
        assert '"last year":"2022-01-01"' in write_block(recall)

    async def test_as_of_replaces_the_current_time(self, library: Library) -> None:
        client = ScriptedClient([search("garden", time_range_days=3), hand_off()])
        recaller = Recaller(library, ANN, client)
        recall = await recaller.recall(REQUEST, as_of=datetime(2026, 3, 4, tzinfo=UTC))
        keys = {item["memory_key"] for item in tool_results(recall)[0]["output"]["results"]}
        assert keys == {"a4", "a5"}
        assert '"now":"2026-03-04T00:00:00+00:00"' in str(client.requests[0].messages[1].content)

    @on_both_engines
    async def test_later_messages_are_not_visible(self, library: Library) -> None:
        client = ScriptedClient(
            [
                search("garden", limit=10),
                detail("a4"),
                search("fence", since="2026-03-01"),
                hand_off(),
            ]
        )
        recaller = Recaller(library, ANN, client)
        recall = await recaller.recall(REQUEST, as_of=datetime(2026, 2, 20, tzinfo=UTC))
        assert set(recall.keys_seen) <= {"a1", "a2", "a3"}
        assert tool_results(recall)[1]["error"] == "not_found"


@on_both_engines
class TestScope:
    async def test_fallback_keeps_the_scope(self, library: Library) -> None:
        client = ScriptedClient([fail("authentication")])
        recall = await Recaller(library, ANN, client, clock=lambda: NOW).recall("端口 5433 数据库")
        assert not {"l1", "l2", "l3", "l4"} & set(recall.keys_seen)

    async def test_bound_agent_filters_search_and_detail(self, library: Library) -> None:
        other = Scope("ann", agent_id="other")
        await add_memory(library, "theirs", "database config of the other agent", other)
        steps = [search(limit=10), detail("a1"), *[hand_off("a1", "theirs")] * 2]
        assert (await run_recall(library, *steps, scope=other)).keys_seen == ["theirs"]


@on_both_engines
async def test_filters_apply_in_every_mode(library: Library) -> None:
    async def check(mode: str) -> None:
        narrow: dict[str, Any] = {"since": "2026-03-01", "role": "assistant", "limit": 10}
        recall = await run_recall(
            library,
            calls(
                search("fence tomatoes port", search_mode=mode, **narrow),
                search("fence tomatoes port", search_mode=mode, keywords=["zqx"], **narrow),
            ),
            hand_off(),
        )
        assert tool_results(recall)[1]["output"]["relaxed"] == ["zqx"]
        for result in tool_results(recall)[:2]:
            assert {item["memory_key"] for item in result["output"]["results"]} == {"a5"}

    await check_each_async(["keyword", "semantic", "hybrid"], check)


class TestBudgets:
    async def test_large_hit_does_not_crowd_out_others(self, library: Library) -> None:
        await add_memory(library, "giant", "database config " * 6_000)
        recall = await run_recall(library, search(limit=3), hand_off("giant", "a1"))
        text = tool_results(recall)[0]["text"]
        assert len(text) < 3_000
        assert text.count("memory_key") == 3
        assert "giant" in write_block(recall)
        assert "a1" in write_block(recall)

    async def test_explicit_zero_overrides_the_default(self, library: Library) -> None:
        recall = await run_recall(library, search(min_relevance_score=0), hand_off())
        assert recall.queries[0].arguments["min_relevance_score"] == 0
        assert recall.queries[0].returned


async def test_rules_judge_when_the_last_model_call_fails(library: Library) -> None:
    steps = [search("database config port pool"), fail("quota", "no money")]
    assert (await run_recall(library, *steps, limits=Limits(model_calls=2))).fallback


async def test_forced_handoff_includes_each_search(library: Library) -> None:
    for n in range(6):
        await add_memory(library, f"db{n}", f"database config port pool number {n}")
    recall = await run_recall(
        library,
        calls(
            search("database config port pool number", limit=6),
            search("garden plan tomatoes along the fence"),
        ),
        say("no"),
        limits=Limits(model_calls=2),
    )
    keys = recall.handoff.relevant_memory_keys
    assert "a4" in keys
    assert [memory.memory_key for memory in recall.memories] == keys
    assert set(keys) < set(recall.keys_seen)  # not every key that was seen
    assert recall.stop_reason is StopReason.MODEL_CALLS


class TestOrder:
    @pytest.mark.service
    @pytest.mark.concurrent
    def test_run_does_not_depend_on_the_hash_seed(self) -> None:
        traces = {
            subprocess.run(
                [sys.executable, "-c", _RECALL],
                env={**os.environ, "PYTHONHASHSEED": seed},
                capture_output=True,
                check=True,
            ).stdout
            for seed in ("1", "2")
        }
        assert len(traces) == 1
        assert b"handoff" in traces.pop()


_RECALL = """
import asyncio, json
from datetime import UTC, datetime
from memrecall.agent import Recaller
from memrecall.scope import Scope
from tests.libraries import open_library
from memrecall.types import NewMessage

NOW = datetime(2026, 3, 10, tzinfo=UTC)
SAID = [
    NewMessage(role="user", content=text, message_id=f"m{n}", ts=NOW)
    for n, text in enumerate(["端口 5433 数据库配置", "port 5433 database", "数据库 port", "茶"])
]

async def main():
    async with open_library(messages=SAID) as library:
        recaller = Recaller(library, Scope("user"), clock=lambda: NOW)
        recalled = await recaller.recall("按照我之前的数据库配置来")
        print(json.dumps(recalled.trace.fixed(), ensure_ascii=False))

asyncio.run(main())
"""


async def test_short_chinese_queries_are_searched(library: Library) -> None:
    recall = await Recaller(library, LIN, clock=lambda: NOW).recall("上次方案")
    assert recall.queries
    assert "l3" in recall.keys_seen


async def test_chinese_sentences_have_no_english_codes(library: Library) -> None:
    scope: dict[str, Any] = {"messages": REQUEST_ZH, "scope": LIN}
    steps = [search("数据库配置"), search("端口"), search("连接池")]
    limited = await run_recall(library, *steps, limits=Limits(tool_calls=2), **scope)
    unsearched = await run_recall(library, limits=Limits(model_calls=0), **scope)
    for recall, words in ((limited, "工具调用次数上限"), (unsearched, "模型调用次数上限")):
        assert words in recall.handoff.message
        assert not re.search("[a-z]+_[a-z]+", recall.handoff.message)


def test_every_code_has_chinese_words() -> None:
    silent = {StopReason.HANDOFF}  # no sentence contains it

    def check(code: str) -> None:
        assert say_codes("en", code) == code
        assert say_codes("zh", code) != code

    check_each(({*StopReason} - silent) | {*Limit} | {*ToolErrorCode}, check)
