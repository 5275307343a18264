"""The five tools: what they find, refuse and say."""

from dataclasses import replace
from typing import Any

import pytest
from autogen_core.models import UserMessage
from pydantic import ValidationError

from memrecall.agent import MEMRECALL_TOOLS, StopReason
from memrecall.agent.tools.definition import Interface
from memrecall.agent.tools.models import HandoffInput, SearchMemoriesInput
from memrecall.agent.tools.table import TOOLS, forced_handoff, function_schemas
from memrecall.errors import EmbedderFailed, InvalidArgument, StorageError
from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.testing import ScriptedClient, call, calls, say
from memrecall.types import NewMemory, Origin

from .recall_helpers import (
    ANN,
    ASKED,
    ASKED_ZH,
    LIN,
    detail,
    hand_off,
    on_both_engines,
    play,
    results,
    search,
    talk,
)

TRUSTED = Scope("ann", permissions=frozenset({Permission.SENSITIVE}))


class TestRegistry:
    def test_the_five_and_their_flags(self) -> None:
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
        asked = SearchMemoriesInput(query="x")
        assert (asked.search_mode, asked.limit, asked.min_relevance_score) == ("hybrid", 5, 0.5)
        for wrong in (
            {"limit": 0},
            {"limit": 11},
            {"time_range_days": 0},
            {"time_range_days": 366},
            {"min_relevance_score": 1.1},
            {"search_mode": "magic"},
        ):
            with pytest.raises(ValidationError):
                SearchMemoriesInput.model_validate({"query": "x", **wrong})
        done = HandoffInput(reason="r", search_summary="s", confidence=1.0)
        assert (done.iteration_used, done.context_window_used) == (1, 5)
        assert (done.relevant_memory_keys, done.needs_more_info) == ([], False)

    @pytest.mark.parametrize("language", ["en", "zh"])
    def test_schemas_are_made_once_and_say_what_arguments_mean(self, language: Any) -> None:
        schemas = function_schemas(Interface.RECALL, language)
        assert function_schemas(Interface.RECALL, language) is schemas
        assert [schema["name"] for schema in schemas] == list(MEMRECALL_TOOLS)
        for schema in schemas:
            for name, drawn in schema["parameters"]["properties"].items():
                assert drawn["description"], name
                assert "title" not in drawn
                assert "anyOf" not in drawn
        assert forced_handoff(language).schema is schemas[-1]
        names = {name for schema in schemas for name in schema["parameters"]["properties"]}
        assert not names & {"user_id", "agent_id", "session_id", "iteration_used"}

    def test_both_languages_describe_every_argument_of_every_tool(self) -> None:
        for tool in TOOLS.values():
            for interface in tool.interfaces:
                variant = tool.for_interface(interface)
                english, chinese = variant.texts("en"), variant.texts("zh")
                assert list(english.arguments) == list(chinese.arguments)
                assert english.description != chinese.description

    def test_an_argument_without_a_description_is_an_error(self) -> None:
        tool = replace(TOOLS["handoff"], arguments=SearchMemoriesInput)
        with pytest.raises(InvalidArgument, match="does not describe the arguments"):
            tool.texts("en")


class TestSearch:
    @on_both_engines
    async def test_memories_and_messages_are_found(self, library: Library) -> None:
        recalled = await play(
            library, search("dark mode"), search("database config"), hand_off("pref", "a1")
        )
        assert [memory.kind for memory in recalled.memories] == ["memory", "message"]
        preference = recalled.memories[0]
        assert preference.memory_type == "user_preference"
        assert [source.memory_key for source in preference.sources] == ["a1"]

    async def test_after_three_in_a_row_it_refuses_and_says_what_is_left(
        self, library: Library
    ) -> None:
        recalled = await play(
            library,
            *(search(words) for words in ("database", "dinner", "garden", "fence")),
            detail("a1"),
            search("fence"),
            hand_off("a1"),
            messages=talk(9),
        )
        refused = results(recalled)[3]
        assert refused["error"] == "too_many_searches"
        for word in ("get_memory_detail", "expand_context_window", "handoff"):
            assert word in refused["text"]
        assert results(recalled)[5]["error"] is None  # another tool in between resets the count
        assert recalled.stop_reason is StopReason.HANDOFF

    async def test_what_is_not_possible_is_not_offered_as_left(self, library: Library) -> None:
        nothing = [search(f"zqx{n}", search_mode="keyword") for n in range(4)]
        recalled = await play(library, *nothing, hand_off())
        refused = results(recalled)[3]["text"]
        assert "get_memory_detail" not in refused
        assert "expand_context_window" not in refused

    @on_both_engines
    async def test_filters(self, library: Library) -> None:
        recalled = await play(
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
        found = [
            {item["memory_key"] for item in result["output"].get("results", [])}
            for result in results(recalled, "search_memories")
        ]
        assert found[0] == {"a4", "a5", "a6", "pref"}
        assert found[1] == {"a2", "a5"}
        assert found[2] == set()
        assert found[3] == {"pref"}
        assert found[4] == {"a4", "a5"}

    async def test_a_filter_that_lets_nothing_through_is_turned_into_words(
        self, library: Library
    ) -> None:
        recalled = await play(
            library, search("garden", keywords=["fence-post"], limit=2), hand_off("a4")
        )
        told = results(recalled)[0]
        assert told["output"]["relaxed"] == ["fence-post"]
        assert "fence-post" in told["text"]
        assert recalled.handoff.relevant_memory_keys == ["a4"]

    @on_both_engines
    async def test_sensitive_memories_need_a_permission(self, library: Library) -> None:
        plain = await play(library, search("database password"), hand_off("secret"))
        assert plain.withheld == 1
        assert plain.keys_dropped == ["secret"]
        assert results(plain)[0]["text"].count("sensitive") == 1
        assert "Withheld as sensitive" in plain.handoff.message
        assert "hunter2" not in plain.model_dump_json()

        trusted = await play(
            library, search("database password"), hand_off("secret"), scope=TRUSTED
        )
        assert trusted.withheld == 0
        assert trusted.memories[0].content.endswith("hunter2")

    async def test_a_permission_is_not_outlived_by_a_cache(self, library: Library) -> None:
        from memrecall.agent import Recaller
        from memrecall.library.caches import Caches

        caches = Caches()
        steps = [search("database password"), detail("secret"), hand_off("secret")]
        shown = []
        for scope in (TRUSTED, ANN, TRUSTED):
            recaller = Recaller(library, scope, ScriptedClient(steps), caches=caches)
            recalled = await recaller.recall(ASKED)
            shown.append(recalled.handoff.relevant_memory_keys)
        assert shown == [["secret"], [], ["secret"]]

    @on_both_engines
    async def test_a_cache_never_hides_a_write(self, library: Library) -> None:
        from memrecall.agent import Recaller
        from memrecall.library.caches import Caches

        caches = Caches()
        for key in ("new1", "new2"):
            memory = NewMemory(memory_key=key, content=f"database config {key}")
            await library.add_memories(ANN, [memory], origin=Origin.USER, actor="test")
            client = ScriptedClient([search(limit=10), hand_off(key)])
            recalled = await Recaller(library, ANN, client, caches=caches).recall(ASKED)
            assert recalled.handoff.relevant_memory_keys == [key]

    @on_both_engines
    async def test_no_tool_reaches_another_user(self, library: Library) -> None:
        recalled = await play(
            library, search("数据库配置", limit=10), detail("l1"), hand_off("l1", "l2")
        )
        assert recalled.handoff.relevant_memory_keys == []
        assert results(recalled)[1]["error"] == "not_found"
        assert "连接池" not in "".join(result["text"] for result in results(recalled))

    async def test_a_long_query_is_cut_and_says_so(self, library: Library) -> None:
        recalled = await play(library, search("database " * 200), hand_off("a1"))
        assert "first 1000 characters" in results(recalled)[0]["text"]

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
        recalled = await play(
            library, search("数据库配置", limit=10), hand_off(), messages=ASKED_ZH, scope=LIN
        )
        told = results(recalled)[0]
        assert len(told["text"]) < 3_000
        assert "截短" in told["text"]
        assert told["text"].count("memory_key") == 10
        assert len(told["output"]["results"][0]["content_preview"]) <= 203


@on_both_engines
async def test_a_trace_keeps_no_copy_for_those_without_permission(library: Library) -> None:
    recalled = await play(library, search("database password"), hand_off("secret"), scope=TRUSTED)
    assert "hunter2" in recalled.model_dump_json()
    stored = await library.store.traces(ANN).get(recalled.trace.trace_id)
    assert "hunter2" not in str(stored.body)
    assert stored.body["handoff"]["relevant_memory_keys"] == ["secret"]


class TestFailures:
    async def test_a_store_that_fails_once_is_tried_again(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _fail_search(monkeypatch, StorageError("disk gone"), times=1)
        recalled = await play(library, search(), hand_off("a1"))
        assert results(recalled)[0]["error"] is None

    async def test_a_store_that_fails_is_not_an_empty_store(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _fail_search(monkeypatch, StorageError("disk gone"), times=99)
        recalled = await play(library, search(), search("dinner"))
        assert results(recalled)[0]["error"] == "storage"
        assert recalled.stop_reason is StopReason.STORAGE_FAILED
        assert not recalled.abstained
        assert not recalled.handoff.success
        assert "does not mean that there is nothing" in recalled.handoff.search_summary

    async def test_a_bug_in_a_tool_does_not_escape(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        _fail_search(monkeypatch, ZeroDivisionError("oops"), times=1)
        recalled = await play(library, search(), search("database"), hand_off("a1"))
        assert results(recalled)[0]["error"] == "internal"
        assert "ZeroDivisionError" in results(recalled)[0]["text"]
        assert recalled.handoff.relevant_memory_keys == ["a1"]

    @pytest.mark.concurrent
    async def test_a_tool_that_hangs_is_stopped(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        import asyncio

        async def hang(*_: object) -> None:
            await asyncio.Event().wait()

        monkeypatch.setattr(Library, "search", hang)
        recalled = await play(library, search(), hand_off(), tool_seconds=0.1)
        assert results(recalled)[0]["error"] == "timeout"
        assert "keyword" in results(recalled)[0]["text"]

    async def test_without_an_embedder_it_goes_on_by_words_and_says_so(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def broken(*_: object) -> None:
            raise EmbedderFailed("the model file is gone")

        monkeypatch.setattr(type(library.embedder), "embed", broken)
        recalled = await play(
            library,
            search("database", search_mode="semantic"),
            search("database", search_mode="hybrid"),
            hand_off("a1"),
        )
        assert results(recalled)[0]["error"] == "embedder"
        assert "search_mode keyword" in results(recalled)[0]["text"]
        assert recalled.handoff.relevant_memory_keys == ["a1"]
        assert any("keywords only" in note for note in recalled.degraded)


def _fail_search(monkeypatch: pytest.MonkeyPatch, error: Exception, times: int) -> None:
    real = Library.search
    left = [times]

    async def search_or_fail(self: Library, *arguments: Any) -> Any:
        if left[0]:
            left[0] -= 1
            raise error
        return await real(self, *arguments)

    monkeypatch.setattr(Library, "search", search_or_fail)


class TestDetail:
    @on_both_engines
    async def test_what_was_said_around_is_shown_and_can_be_handed_off(
        self, library: Library
    ) -> None:
        recalled = await play(library, search("garden", limit=1), detail("a4"), hand_off("a5"))
        told = results(recalled)[1]["output"]
        assert [near["memory_key"] for near in told["after"]] == ["a5", "a6"]
        assert recalled.handoff.relevant_memory_keys == ["a5"]
        assert recalled.memories[0].relevance_score is None

    async def test_a_long_content_is_cut_and_says_so(self, library: Library) -> None:
        memory = NewMemory(memory_key="long", content="database " * 5_000)
        await library.add_memories(ANN, [memory], origin=Origin.USER, actor="test")
        recalled = await play(library, detail("long"), hand_off("long"))
        told = results(recalled)[0]
        assert len(told["text"]) < 5_000
        assert "4000 of 45000 characters" in told["text"]
        assert len(recalled.memories[0].content) == 45_000


class TestKeywords:
    async def test_by_the_model(self, library: Library) -> None:
        answer = (
            '{"keywords": [{"keyword": "database", "weight": 0.9, "type": "entity"},'
            ' {"keyword": "config", "weight": 0.5, "type": "thing"}], "expanded_query": "db"}'
        )
        client = ScriptedClient(
            [call("extract_search_keywords", query="database config"), say(answer), hand_off()]
        )
        recalled = await play(library, client=client)
        told = results(recalled)[0]["output"]
        assert [word["type"] for word in told["keywords"]] == ["entity", "concept"]
        assert told["expanded_query"] == "db"
        assert recalled.usage["model_calls"] == 3
        question = client.requests[1].messages[-1]
        assert isinstance(question, UserMessage)
        assert '"query":"database config"' in str(question.content)

    async def test_bad_json_is_asked_for_once_more(self, library: Library) -> None:
        recalled = await play(
            library,
            call("extract_search_keywords", query="database config"),
            say("Sure! The keywords are many."),
            say('{"keywords": [{"keyword": "database", "weight": 1, "type": "entity"}]}'),
            hand_off(),
        )
        assert results(recalled)[0]["output"]["keywords"][0]["keyword"] == "database"

    async def test_twice_bad_json_falls_back_on_rules_and_says_so(self, library: Library) -> None:
        recalled = await play(
            library,
            call("extract_search_keywords", query="database config"),
            say("Sure!"),
            say("Really sure!"),
            hand_off(),
        )
        told = results(recalled)[0]["output"]
        assert {word["keyword"] for word in told["keywords"]} == {"database", "config"}
        assert "made by rules" in told["message"]

    async def test_a_query_is_expanded_by_the_model_only_if_asked_and_once(
        self, library: Library
    ) -> None:
        answer = say('{"keywords": [{"keyword": "trout", "weight": 1, "type": "entity"}]}')
        recalled = await play(
            library,
            search("that fish place"),
            answer,
            search("that fish place", limit=6),  # the same words: kept for five minutes
            hand_off("a3"),
            expand_with_model=True,
        )
        assert results(recalled)[0]["output"]["search_query_expanded"] == "trout"
        assert results(recalled)[1]["output"]["search_query_expanded"] == "trout"
        assert recalled.handoff.relevant_memory_keys == ["a3"]


async def test_a_chinese_recall_speaks_chinese(library: Library) -> None:
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
    recalled = await play(library, client=client, messages=ASKED_ZH, scope=LIN)
    assert "查找用户所指的内容" in str(client.requests[0].messages[0].content)
    assert "搜索该用户的记忆" in str(client.requests[0].tools)
    assert "没有工具" in results(recalled)[1]["text"]
    for section in ("信心度: 90%", "搜索总结", "相关性分析", "相关记忆标识", "需要进一步澄清"):
        assert section in recalled.handoff.message
