"""The five recall tools: results, refusals and failures."""

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from autogen_core.models import UserMessage
from pydantic import ValidationError

import memrecall.chat.turn
import memrecall.server.tools  # noqa: F401 -- both add tools to the table
from memrecall.agent import MEMRECALL_TOOLS, Recaller, StopReason
from memrecall.agent.tools.models import HandoffInput, SearchMemoriesInput
from memrecall.agent.tools.table import TOOLS
from memrecall.budget import Limits
from memrecall.errors import EmbedderFailed, InvalidArgument, StorageError
from memrecall.library.library import Caches
from memrecall.memory import Library, recall
from memrecall.scope import Permission, Scope
from memrecall.search import SearchEngine
from memrecall.testing import ScriptedClient, call, calls, say
from memrecall.types import NewMemory, NewMessage, Origin, Role
from tests.counting import Calls, counting_calls

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
    user_messages,
)

TRUSTED = Scope("ann", permissions=frozenset({Permission.SENSITIVE}))


class TestRegistry:
    def test_recall_tools_and_their_flags(self) -> None:
        assert list(MEMRECALL_TOOLS) == [
            "search_memories",
            "get_memory_detail",
            "extract_search_keywords",
            "expand_context_window",
            "handoff",
        ]
        for name, tool in MEMRECALL_TOOLS.items():
            assert tool["name"] == name
            assert tool["description"]
            assert callable(tool["func"])
            assert tool.get("is_expansion", False) == (name == "expand_context_window")
            assert tool.get("is_handoff", False) == (name == "handoff")

    def test_defaults_and_bounds(self) -> None:
        arguments = SearchMemoriesInput(query="x")
        assert (arguments.search_mode, arguments.limit, arguments.min_relevance_score) == (
            "hybrid",
            5,
            0.5,
        )
        for fields in (
            {"limit": 0},
            {"limit": 11},
            {"time_range_days": 0},
            {"time_range_days": 366},
            {"min_relevance_score": 1.1},
            {"search_mode": "magic"},
        ):
            with pytest.raises(ValidationError):
                SearchMemoriesInput.model_validate({"query": "x", **fields})
        handoff = HandoffInput(reason="r", search_summary="s", confidence=1.0)
        assert (handoff.iteration_used, handoff.context_window_used) == (1, 5)
        assert (handoff.relevant_memory_keys, handoff.needs_more_info) == ([], False)

    def test_texts_describe_every_argument_in_both_languages(self) -> None:
        for tool in TOOLS.values():
            for interface in tool.interfaces:
                variant = tool.for_interface(interface)
                english, chinese = variant.texts("en"), variant.texts("zh")
                assert list(english.arguments) == list(chinese.arguments)
                assert english.description != chinese.description

    def test_missing_argument_description_raises(self) -> None:
        tool = replace(TOOLS["handoff"], arguments=SearchMemoriesInput)
        with pytest.raises(InvalidArgument, match="does not describe the arguments"):
            tool.texts("en")


class TestSearch:
    @on_both_engines
    async def test_search_returns_memories_and_messages(self, library: Library) -> None:
        recall = await run_recall(
            library, search("dark mode"), search("database config"), hand_off("pref", "a1")
        )
        assert [memory.kind for memory in recall.memories] == ["memory", "message"]
        preference = recall.memories[0]
        assert preference.memory_type == "user_preference"
        assert [source.memory_key for source in preference.sources] == ["a1"]

    async def test_fourth_consecutive_search_is_refused_with_options(
        self, library: Library
    ) -> None:
        recall = await run_recall(
            library,
            *(search(words) for words in ("database", "dinner", "garden", "fence")),
            detail("a1"),
            search("fence"),
            hand_off("a1"),
            messages=user_messages(9),
        )
        refusal = tool_results(recall)[3]
        assert refusal["error"] == "too_many_searches"
        for word in ("get_memory_detail", "expand_context_window", "handoff"):
            assert word in refusal["text"]
        assert tool_results(recall)[5]["error"] is None  # another tool in between resets the count
        assert recall.stop_reason is StopReason.HANDOFF

    async def test_refusal_offers_only_possible_options(self, library: Library) -> None:
        empty_searches = [search(f"zqx{n}", search_mode="keyword") for n in range(4)]
        recall = await run_recall(library, *empty_searches, hand_off())
        refusal = tool_results(recall)[3]["text"]
        assert "get_memory_detail" not in refusal
        assert "expand_context_window" not in refusal

    @on_both_engines
    async def test_filters(self, library: Library) -> None:
        recall = await run_recall(
            library,
            calls(
                search("fence", time_range_days=10),
                search("fence", role="assistant"),
                search("fence", since="2026-03-03", until="2026-03-04"),
            ),
            calls(detail("a4"), search("dark", memory_types=["user_preference"])),
            calls(detail("a4"), search("plan", keywords=["tomatoes"])),
            hand_off(),
        )
        hits = [
            {item["memory_key"] for item in result["output"].get("results", [])}
            for result in tool_results(recall, "search_memories")
        ]
        assert hits[0] == {"a4", "a5", "a6", "pref"}
        assert hits[1] == {"a2", "a5"}
        assert hits[2] == set()
        assert hits[3] == {"pref"}
        assert hits[4] == {"a4", "a5"}

    @on_both_engines
    async def test_few_messages_of_a_period_are_returned_whole(self, library: Library) -> None:
        recall = await run_recall(
            library,
            search("zebra", time_range_days=10, limit=1),
            search("zebra", limit=1),
            hand_off(),
        )
        days, everything = tool_results(recall, "search_memories")
        assert len(days["output"]["results"]) > 1
        assert len(everything["output"]["results"]) <= 1

    async def test_filters_without_results_become_query_words(self, library: Library) -> None:
        recall = await run_recall(
            library, search("garden", keywords=["fence-post"], limit=2), hand_off("a4")
        )
        result = tool_results(recall)[0]
        assert result["output"]["relaxed"] == ["fence-post"]
        assert "fence-post" in result["text"]
        assert recall.handoff.relevant_memory_keys == ["a4"]

    @on_both_engines
    async def test_sensitive_memories_need_a_permission(self, library: Library) -> None:
        plain = await run_recall(library, search("database password"), *[hand_off("secret")] * 2)
        assert plain.withheld == 1
        assert plain.keys_dropped == ["secret"]
        assert tool_results(plain)[0]["text"].count("sensitive") == 1
        assert "Withheld for lack of permission" in plain.handoff.message
        assert "hunter2" not in plain.model_dump_json()

        trusted = await run_recall(
            library, search("database password"), hand_off("secret"), scope=TRUSTED
        )
        assert trusted.withheld == 0
        assert trusted.memories[0].content.endswith("hunter2")

    async def test_cache_respects_permissions(self, library: Library) -> None:
        caches = Caches()
        steps = [search("database password"), detail("secret"), *[hand_off("secret")] * 2]
        keys = []
        for scope in (TRUSTED, ANN, TRUSTED):
            recaller = Recaller(library, scope, ScriptedClient(steps), caches=caches)
            recall = await recaller.recall(REQUEST)
            keys.append(recall.handoff.relevant_memory_keys)
        assert keys == [["secret"], [], ["secret"]]

    async def test_repeated_recalls_share_the_caches_of_their_library(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        searches = []

        async def count(*arguments: Any) -> Any:
            searches.append(arguments)
            return await Library.search(library, *arguments)

        monkeypatch.setattr(library, "search", count)
        for _ in range(2):
            client = ScriptedClient([search(), detail("a1"), hand_off("a1")])
            result = await recall(
                REQUEST, user_id="ann", library=library, model_client=client, clock=lambda: NOW
            )
            assert result.handoff.relevant_memory_keys == ["a1"]
        assert len(searches) == 1

    @on_both_engines
    async def test_cache_is_invalidated_by_writes(self, library: Library) -> None:
        caches = Caches()
        for key in ("new1", "new2"):
            await add_memory(library, key, f"database config {key}")
            client = ScriptedClient([search(limit=10), hand_off(key)])
            recall = await Recaller(library, ANN, client, caches=caches).recall(REQUEST)
            assert recall.handoff.relevant_memory_keys == [key]

    @on_both_engines
    async def test_tools_cannot_reach_another_user(self, library: Library) -> None:
        recall = await run_recall(
            library, search("数据库配置", limit=10), detail("l1"), *[hand_off("l1", "l2")] * 2
        )
        assert recall.handoff.relevant_memory_keys == []
        assert tool_results(recall)[1]["error"] == "not_found"
        assert not {"l1", "l2", "l3", "l4"} & set(recall.keys_seen)
        assert "连接池" not in "".join(result["text"] for result in tool_results(recall))

    async def test_long_query_is_truncated_with_a_note(self, library: Library) -> None:
        recall = await run_recall(library, search("database " * 200), hand_off("a1"))
        assert "first 1000 characters" in tool_results(recall)[0]["text"]

    async def test_results_stay_within_their_size(self, library: Library) -> None:
        memories = [
            NewMemory(
                memory_key=f"long-key-{n:02d}-" + "k" * 40,
                content="数据库配置 " + "很长的内容，" * 400,
                summary="关于数据库配置的说明" * 30,
                keywords=tuple({"keyword": f"关键词{m}"} for m in range(9)),
            )
            for n in range(12)
        ]
        await library.add_memories(LIN, memories, origin=Origin.USER, actor="test")
        recall = await run_recall(
            library, search("数据库配置", limit=10), hand_off(), messages=REQUEST_ZH, scope=LIN
        )
        result = tool_results(recall)[0]
        assert len(result["text"]) < 3_000
        assert "截短" in result["text"]
        assert result["text"].count("memory_key") == 10
        assert len(result["output"]["results"][0]["content_preview"]) <= 203


@on_both_engines
async def test_trace_omits_contents_of_sensitive_recalls(library: Library) -> None:
    recall = await run_recall(
        library, search("database password"), hand_off("secret"), scope=TRUSTED
    )
    assert "hunter2" in recall.model_dump_json()
    trace = await library.store.traces(ANN).get(recall.trace.trace_id)
    assert "hunter2" not in str(trace.body)
    assert trace.body["handoff"]["relevant_memory_keys"] == ["secret"]


class TestFailures:
    async def test_storage_failure_is_retried_once(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _fail_search(monkeypatch, StorageError("disk gone"), times=1)
        recall = await run_recall(library, search(), hand_off("a1"))
        assert tool_results(recall)[0]["error"] is None

    async def test_storage_failure_is_not_an_empty_result(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _fail_search(monkeypatch, StorageError("disk gone"), times=99)
        recall = await run_recall(library, search(), search("dinner"))
        assert tool_results(recall)[0]["error"] == "storage"
        assert recall.stop_reason is StopReason.STORAGE_FAILED
        assert not recall.abstained
        assert not recall.handoff.success
        assert "does not mean that nothing is stored" in recall.handoff.search_summary

    async def test_unexpected_error_becomes_an_internal_failure(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _fail_search(monkeypatch, ZeroDivisionError("oops"), times=1)
        recall = await run_recall(library, search(), search("database"), hand_off("a1"))
        assert tool_results(recall)[0]["error"] == "internal"
        assert "ZeroDivisionError" in tool_results(recall)[0]["text"]
        assert recall.handoff.relevant_memory_keys == ["a1"]

    @pytest.mark.concurrent
    async def test_hanging_tool_times_out(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def hang(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(Library, "search", hang)
        recall = await run_recall(library, search(), hand_off(), tool_seconds=0.1)
        assert tool_results(recall)[0]["error"] == "timeout"
        assert "keyword" in tool_results(recall)[0]["text"]

    async def test_loading_the_embedder_does_not_count_as_search_time(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        steps: list[str] = []
        start_limit = asyncio.timeout

        async def load(_: SearchEngine) -> None:
            steps.append("load")

        def note_limit(seconds: float | None) -> asyncio.Timeout:
            if seconds == 17.0:
                steps.append("limit")
            return start_limit(seconds)

        monkeypatch.setattr(SearchEngine, "load_embedder", load)
        monkeypatch.setattr(asyncio, "timeout", note_limit)
        await run_recall(library, search(), hand_off("a1"), tool_seconds=17.0)
        # The search makes sure of it again; the second limit is that of the handoff.
        assert steps == ["load", "limit", "load", "limit"]

    async def test_search_without_embedder_falls_back_to_keywords(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: object) -> None:
            raise EmbedderFailed("the model file is gone")

        monkeypatch.setattr(type(library.embedder), "embed", broken)
        recall = await run_recall(
            library,
            search("database", search_mode="semantic"),
            search("database", search_mode="hybrid"),
            hand_off("a1"),
        )
        assert tool_results(recall)[0]["error"] == "embedder"
        assert "search_mode keyword" in tool_results(recall)[0]["text"]
        assert recall.handoff.relevant_memory_keys == ["a1"]
        assert any("keywords only" in note for note in recall.degraded)


def _fail_search(monkeypatch: pytest.MonkeyPatch, error: Exception, times: int) -> None:
    real = Library.search
    remaining = [times]

    async def search_or_fail(self: Library, *arguments: Any) -> Any:
        if remaining[0]:
            remaining[0] -= 1
            raise error
        return await real(self, *arguments)

    monkeypatch.setattr(Library, "search", search_or_fail)


class TestDetail:
    @on_both_engines
    async def test_detail_shows_neighbors_that_can_be_handed_off(self, library: Library) -> None:
        recall = await run_recall(library, search("garden", limit=1), detail("a4"), hand_off("a5"))
        result = tool_results(recall)[1]["output"]
        assert [neighbor["memory_key"] for neighbor in result["after"]] == ["a5", "a6"]
        assert recall.handoff.relevant_memory_keys == ["a5"]
        assert recall.memories[0].relevance_score is None

    async def test_long_content_is_truncated_with_a_note(self, library: Library) -> None:
        await add_memory(library, "long", "database " * 5_000)
        recall = await run_recall(library, detail("long"), hand_off("long"))
        result = tool_results(recall)[0]
        assert len(result["text"]) < 5_000
        assert "characters 0 to 4000 of 45000" in result["text"]
        assert len(recall.memories[0].content) == 45_000

    async def test_long_content_is_shown_around_the_query(self, library: Library) -> None:
        text = "Notes about the weather. " * 1_000
        content = f"{text}The database port is 5433. {text}"
        await add_memory(library, "long", content)
        steps = (search("database port"), detail("long"), hand_off("long"))
        recall = await run_recall(library, *steps)
        shown = json.loads(tool_results(recall, "get_memory_detail")[0]["text"])
        assert "The database port is 5433." in shown["content"]
        assert len(shown["content"]) == 4_000
        assert shown["truncated"].startswith("characters 23")
        assert tool_results(recall, "get_memory_detail")[0]["output"]["content"] == content

    async def test_memory_that_was_cut_when_stored_says_so(self, library: Library) -> None:
        await add_memory(library, "long", "database " * 20_000)
        recall = await run_recall(library, detail("long"), detail("a1"), hand_off("long"))
        long, short = tool_results(recall, "get_memory_detail")
        assert "Only the beginning was stored" in long["text"]
        assert "Only the beginning" not in short["text"]


class TestKeywords:
    async def test_model_extracts_keywords(self, library: Library) -> None:
        answer = (
            '{"keywords": [{"keyword": "database", "weight": 1e9, "type": "entity"},'
            ' {"keyword": "config", "weight": NaN, "type": "thing"}], "expanded_query": "db"}'
        )
        client = ScriptedClient(
            [call("extract_search_keywords", query="database config"), say(answer), hand_off()]
        )
        recall = await run_recall(library, client=client)
        result = tool_results(recall)[0]["output"]
        assert [word["type"] for word in result["keywords"]] == ["entity", "concept"]
        assert [word["weight"] for word in result["keywords"]] == [1.0, 0.0]
        assert result["expanded_query"] == "db"
        assert recall.usage["model_calls"] == 3
        question = client.requests[1].messages[-1]
        assert isinstance(question, UserMessage)
        assert '"query":"database config"' in str(question.content)

    async def test_invalid_json_is_requested_again(self, library: Library) -> None:
        recall = await run_recall(
            library,
            call("extract_search_keywords", query="database config"),
            say("Sure! The keywords are many."),
            say('{"keywords": [{"keyword": "database", "weight": 1, "type": "entity"}]}'),
            hand_off(),
        )
        assert tool_results(recall)[0]["output"]["keywords"][0]["keyword"] == "database"

    async def test_repeated_invalid_json_falls_back_to_rules(self, library: Library) -> None:
        recall = await run_recall(
            library,
            call("extract_search_keywords", query="database config"),
            say("Sure!"),
            say("Really sure!"),
            hand_off(),
        )
        result = tool_results(recall)[0]["output"]
        assert {word["keyword"] for word in result["keywords"]} == {"database", "config"}
        assert "come from the text alone" in result["message"]

    async def test_long_answers_of_the_model_are_cut(self, library: Library) -> None:
        word = {"keyword": "k" * 100_000, "weight": 1, "type": "t" * 100_000}
        answer = say(json.dumps({"keywords": [word] * 50, "expanded_query": "e" * 100_000}))
        recall = await run_recall(
            library,
            *(call("extract_search_keywords", query="fish", max_keywords=10), answer),
            hand_off(),
            limits=Limits(tokens=10**9),
        )
        keywords = tool_results(recall)[0]["output"]
        assert [len(item["keyword"]) for item in keywords["keywords"]] == [100] * 10
        assert len(keywords["expanded_query"]) == 500
        assert len(recall.model_dump_json()) < 20_000

    @pytest.mark.parametrize(
        ("limits", "allowed"), [(Limits(model_calls=4), 2), (Limits(tokens=11_000), 1)]
    )
    async def test_model_calls_of_tools_respect_the_limits(
        self, library: Library, limits: Limits, allowed: int
    ) -> None:
        answer = say('{"keywords": [{"keyword": "trout", "weight": 1, "type": "entity"}]}')
        extractions = [call("extract_search_keywords", query=f"fish {n}") for n in range(8)]
        client = ScriptedClient(
            [calls(*extractions), *[answer] * allowed, hand_off()], tokens=(5_000, 10)
        )
        recall = await run_recall(library, client=client, limits=limits)
        outputs = [event["output"] for event in tool_results(recall, "extract_search_keywords")]
        by_model = [output for output in outputs if "message" not in output]
        assert (len(outputs), len(by_model)) == (8, allowed)
        assert "the limit on" in outputs[-1]["message"]
        assert len(client.requests) == allowed + 2  # one call was left for the handoff
        assert recall.fallback is not None  # the model searched nothing


async def test_chinese_recall_answers_in_chinese(library: Library) -> None:
    client = ScriptedClient(
        [
            search("数据库配置"),
            call("delete_everything"),
            hand_off(
                "l1",
                search_summary="端口 5433",
                needs_more_info=True,
                follow_up_question="是这个吗？",
            ),
        ]
    )
    recall = await run_recall(library, client=client, messages=REQUEST_ZH, scope=LIN)
    assert "查找用户所指的内容" in str(client.requests[0].messages[0].content)
    assert "搜索该用户的记忆" in str(client.requests[0].tools)
    assert "没有工具" in tool_results(recall)[1]["text"]
    for section in ("信心度: 90%", "搜索总结", "相关性分析", "相关记忆标识", "需要进一步澄清"):
        assert section in recall.handoff.message


class TestLongTexts:
    """Text is read in a thread or process, so that other requests need not wait."""

    async def calls_in_event_loop(self, library: Library, user: str, words: int) -> int:
        text = " ".join(f"config{n} tomorrow" for n in range(words))
        batch = [
            NewMessage(message_id=f"{user}{n}", role=Role.USER, content=f"{text} {n}", ts=NOW)
            for n in range(3)
        ]
        await library.add_messages(Scope(user), batch)
        steps = (search("config7 config8"), detail(f"{user}0"), hand_off(f"{user}0", f"{user}1"))
        calls = Calls()
        with counting_calls(calls):
            result = await run_recall(library, *steps, scope=Scope(user))
        assert [memory.memory_key for memory in result.memories] == [f"{user}0", f"{user}1"]
        return calls.number

    @pytest.mark.concurrent
    async def test_work_of_the_event_loop_does_not_grow(self, sqlite_library: Library) -> None:
        await self.calls_in_event_loop(sqlite_library, "warm-up", 1_600)
        short = await self.calls_in_event_loop(sqlite_library, "short", 1_600)
        assert await self.calls_in_event_loop(sqlite_library, "long", 6_400) < 1.25 * short
