"""Search: modes, filters, order, pages, and the message of empty results."""

from datetime import UTC, datetime, timedelta
from itertools import product
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import EngineRequest, SearchPage, SearchRequest
from memrecall.settings import Settings
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..cases import check_each, check_each_async

START = datetime(2026, 3, 1, 9, 0, tzinfo=UTC)
LIN = Scope("lin")

CHAT = [
    ("m1", "user", "我不吃辣，火锅只点清汤"),
    ("m2", "assistant", "好的，记住了：清汤锅"),
    ("m3", "user", "The database config is db_config_001, port 5432"),
    ("m4", "assistant", "Saved. The pool has twenty connections"),
    ("m5", "user", "週末去爬山，記得帶傘"),
    ("m6", "user", "deploy with C++ build flags, don't forget"),
    ("m7", "assistant", "数据库配置已经更新，端口改成 6543"),
]


def new_message(key: str, role: str, content: str, minutes: int = 0, **fields: Any) -> NewMessage:
    moment = START + timedelta(minutes=minutes)
    return NewMessage(message_id=key, role=Role(role), content=content, ts=moment, **fields)


async def chat(library: Library, scope: Scope = LIN) -> None:
    batch = [new_message(key, role, text, at) for at, (key, role, text) in enumerate(CHAT)]
    await library.add_messages(scope, batch)


def keys(page: SearchPage) -> list[str]:
    return [hit.key for hit in page.results]


async def find(library: Library, query: str, scope: Scope = LIN, **options: Any) -> SearchPage:
    return await library.search(scope, EngineRequest(query, **options))


TOP_HITS: list[tuple[str, str]] = [
    ("火锅", "m1"),
    ("db_config_001", "m3"),
    ("config 5432", "m3"),
    ("数据库配置", "m7"),
    ("周末爬山记得带伞", "m5"),
    ("C++", "m6"),
    ("don't", "m6"),
    ("connection pool", "m4"),
]


async def test_keywords_match_in_both_languages(library: Library) -> None:
    await chat(library)

    async def check(case: tuple[str, tuple[str, str]]) -> None:
        mode, (query, first) = case
        page = await find(library, query, mode=mode)
        assert keys(page)[0] == first
        assert page.results[0].why.lexical > 0

    await check_each_async(product(["keyword", "hybrid"], TOP_HITS), check)


async def test_search_returns_memories_and_messages(library: Library) -> None:
    await chat(library)
    memory = NewMemory(content="Lin prefers clear soup 清汤", memory_key="k1", memory_type="taste")
    await library.add_memories(LIN, [memory], origin=Origin.USER, actor="test")
    page = await find(library, "清汤")
    assert {hit.kind for hit in page.results} == {"message", "memory"}
    assert keys(await find(library, "清汤", kind="memory")) == ["k1"]
    assert keys(await find(library, "清汤", memory_types=("taste",))) == ["k1"]
    assert "k1" not in keys(await find(library, "清汤", memory_types=("message",)))
    assert keys(await find(library, "清汤", memory_types=("other",))) == []


async def test_keyword_only_hit_can_rank_first(library: Library) -> None:
    await chat(library)
    await library.vectors.settle()
    library.vectors._embedder = None  # later rows have no vector
    await library.add_messages(LIN, [new_message("late", "user", "zeppelin rides", 99)])
    page = await find(library, "zeppelin")
    assert keys(page)[0] == "late"
    assert page.results[0].why.semantic == 0
    assert page.unembedded == 1
    assert "not embedded" in page.message


async def test_semantic_search_ranks_by_cosine(library: Library) -> None:
    await chat(library)
    page = await find(library, "database configuration", mode="semantic")
    cosines = [hit.why.cosine for hit in page.results]
    assert cosines == sorted(cosines, reverse=True)
    assert all(hit.why.lexical == 0 for hit in page.results)


async def test_filters_apply_before_limit(library: Library) -> None:
    # Thirty better matches by the assistant must not push the user's ten off the page.
    by_assistant = [new_message(f"a{n}", "assistant", "tea tea tea tea", n) for n in range(30)]
    by_user = [
        new_message(f"u{n}", "user", f"some tea with a longer remark {n}", n) for n in range(10)
    ]
    await library.add_messages(LIN, [*by_assistant, *by_user])
    await library.vectors.settle()
    for mode in ("keyword", "semantic", "hybrid"):
        page = await find(library, "tea", mode=mode, role=Role.USER, limit=10)
        assert len(page.results) == 10, mode
        assert page.total_found == 10
        assert {hit.role for hit in page.results} == {"user"}


async def test_filters_by_time_session_agent_and_keyword(library: Library) -> None:
    await library.add_messages(
        Scope("lin", "a1", "s1"), [new_message("x1", "user", "green tea", 0)]
    )
    await library.add_messages(
        Scope("lin", "a1", "s2"), [new_message("x2", "user", "black tea", 10)]
    )
    await library.add_messages(
        Scope("lin", "a2", "s3"), [new_message("x3", "user", "white tea", 20)]
    )
    later = START + timedelta(minutes=10)
    assert set(keys(await find(library, "tea", since=later))) == {"x2", "x3"}
    assert set(keys(await find(library, "tea", until=later))) == {"x1"}
    assert keys(await find(library, "tea", session_id="s2")) == ["x2"]
    assert keys(await find(library, "tea", session_id="unknown")) == []
    assert set(keys(await find(library, "tea", Scope("lin", "a1")))) == {"x1", "x2"}
    assert keys(await find(library, "tea", keywords=("black", "zeppelin"))) == ["x2"]
    assert set(keys(await find(library, "tea", exclude=frozenset({"x1"})))) == {"x2", "x3"}


async def test_expansions_raise_score_without_required_match(library: Library) -> None:
    await chat(library)
    assert (await find(library, "soup", mode="keyword")).results == ()
    assert keys(await find(library, "soup", mode="keyword", expansions=("清汤",)))[:1] == ["m2"]


async def test_equal_scores_are_ordered_by_time_then_key(library: Library) -> None:
    batch = [
        new_message(key, "user", "same words", at) for key, at in [("b", 0), ("a", 0), ("c", 5)]
    ]
    await library.add_messages(LIN, batch)
    assert keys(await find(library, "same words", mode="keyword")) == ["c", "a", "b"]


async def test_pages_add_up_to_all_results(library: Library) -> None:
    async def check(mode: str) -> None:
        scope = Scope(f"reader by {mode}")
        batch = [new_message(f"t{n}", "user", "tea " * (n % 3 + 1), n // 4) for n in range(23)]
        await library.add_messages(scope, batch)
        whole = keys(await find(library, "tea", scope, mode=mode, limit=200))
        assert len(whole) == 23
        paged: list[str] = []
        cursor = None
        while True:
            page = await find(library, "tea", scope, mode=mode, limit=4, cursor=cursor)
            paged += keys(page)
            # Rows written between two pages are on neither.
            new = new_message(f"new{len(paged)}", "user", "tea tea tea", 500)
            await library.add_messages(scope, [new])
            cursor = page.next_cursor
            if cursor is None:
                break
        assert paged == whole

    await check_each_async(["keyword", "hybrid"], check)


async def test_cursor_of_another_search_or_user_is_rejected(library: Library) -> None:
    for user in ("lin", "maya"):
        await library.add_messages(
            Scope(user), [new_message(f"t{n}", "user", "tea", n) for n in range(5)]
        )
    cursor = (await find(library, "tea", limit=2)).next_cursor
    assert cursor is not None
    for query, scope in (("coffee", LIN), ("tea", Scope("maya"))):
        with pytest.raises(InvalidArgument, match="cursor"):
            await find(library, query, scope, limit=2, cursor=cursor)
    with pytest.raises(InvalidArgument, match="cursor"):
        await find(library, "tea", limit=2, cursor=cursor[:-2] + "AA")


async def test_query_language_filters_exactly(library: Library) -> None:
    await chat(library)

    async def matching(query: str) -> set[str]:
        return set(keys(await find(library, query, syntax="query", limit=50)))

    assert await matching('"不吃辣" AND 火锅') == {"m1"}
    assert await matching("火锅 OR config") == {"m1", "m3"}
    assert await matching("数据库 AND NOT 5432") == {"m7"}
    assert await matching("conf*") == {"m3"}
    assert await matching("connection*") == {"m4"}  # indexed by its stem, "connect"
    assert await matching("db_conf*") == {"m3"}
    assert await matching('"吃火锅"') == set()  # there is a comma between them
    assert await matching("NOT (火锅 OR 数据库 OR database)") == {"m2", "m4", "m5", "m6"}
    assert await matching("資料 OR 記得") == {"m5"}


async def test_any_plain_text_is_a_valid_query(library: Library) -> None:
    await chat(library)

    async def check(query: str) -> None:
        await find(library, query)
        await find(library, query, mode="keyword")

    queries = ["C++", "don't", "(:", '"', "a AND", "*", "NOT", "））", "😀"]
    await check_each_async(queries, check)


async def test_writes_of_other_process_are_visible(
    library: Library, location: str, tmp_path: Any
) -> None:
    from tests.search.conftest import open_library

    await chat(library)
    async with await open_library(location, tmp_path / "other") as other:
        assert keys(await find(other, "火锅"))[0] == "m1"
        await library.add_messages(LIN, [new_message("z1", "user", "zeppelin", 50)])
        assert keys(await find(other, "zeppelin"))[0] == "z1"
        await other.add_messages(LIN, [new_message("z2", "user", "airship", 51)])
        assert keys(await find(library, "airship"))[0] == "z2"


async def test_scores_do_not_depend_on_other_users(library: Library) -> None:
    await chat(library)
    before = await find(library, "数据库 config", now=START)
    messages = [new_message(f"c{n}", "user", "数据库 config database", n) for n in range(50)]
    await library.add_messages(Scope("crowd"), messages)
    assert await find(library, "数据库 config", now=START) == before


async def test_users_cannot_find_rows_of_others(library: Library) -> None:
    await chat(library)
    await library.add_messages(Scope("maya"), [new_message("m1", "user", "secret canary")])
    assert keys(await find(library, "secret canary", Scope("maya"))) == ["m1"]
    for mode in ("keyword", "semantic", "hybrid"):
        page = await find(library, "secret canary", mode=mode)
        assert all("canary" not in hit.content for hit in page.results)


@pytest.mark.parametrize("others", [0, 1, 4])
async def test_only_sensitive_memories_that_match_are_counted(location: str, others: int) -> None:
    """In a small store, the relevance of an unrelated memory can be high."""
    cases = [
        (
            "My bank PIN is 4821",
            ("My sister Nora lives in Lyon.", "I bought a red bicycle.", "The fence needs paint."),
            ("what is my bank PIN?", "which number opens my account at the ATM?"),
            ("where does my sister live?", "what is the capital of France?"),
        ),
        (
            "我的银行卡密码是4821",
            ("我姐姐诺拉住在里昂。", "我买了一辆红色自行车。", "花园的篱笆需要刷漆。"),
            ("我的银行卡密码是多少？", "取款机要输什么数字？"),
            ("我姐姐住在哪里？", "法国的首都是哪里？"),
        ),
    ]
    settings = Settings(db=location, embedder="local", snapshots=False)
    async with await Library.open(settings, create=True) as library:
        for secret, texts, matching, unrelated in cases:
            scope = Scope(f"keeper {secret}")
            memories = [NewMemory(content=text) for text in texts[:others]]
            memories.append(NewMemory(content=secret, sensitive=True))
            await library.add_memories(scope, memories, origin=Origin.USER, actor="test")
            await library.vectors.settle()
            for query in (*matching, *unrelated):
                page = await library.search(scope, SearchRequest(query, threshold=0.02))
                assert (query, page.withheld) == (query, int(query in matching))


async def test_only_valid_memories_are_found(library: Library) -> None:
    memory = NewMemory(content="works at Acme", memory_key="job", valid_to=START)
    await library.add_memories(LIN, [memory], origin=Origin.USER, actor="test")
    before, after = START - timedelta(days=1), START + timedelta(days=1)
    assert keys(await find(library, "Acme", now=before)) == ["job"]
    assert keys(await find(library, "Acme", now=after)) == []


async def test_named_time_raises_rows_of_that_time(library: Library) -> None:
    batch = [new_message(f"d{n}", "user", "we had tea", minutes=n * 24 * 60) for n in range(10)]
    await library.add_messages(LIN, batch)
    page = await find(library, "tea three days ago", now=START + timedelta(days=9))
    assert keys(page)[0] == "d6"
    assert page.results[0].why.time > page.results[1].why.time  # a day off counts for less
    assert {hit.key for hit in page.results if hit.why.time > 0} == {"d4", "d5", "d6", "d7", "d8"}


async def test_neighbours_of_good_hit_are_raised(library: Library) -> None:
    distant = [
        new_message(f"f{n}", ("user", "assistant")[n % 2], f"idle talk {n}", n) for n in range(20)
    ]
    await library.add_messages(LIN.with_session("far"), distant)
    dialogue = [
        new_message("q", "user", "which zeppelin museum should I visit", 100),
        new_message("r", "assistant", "idle talk 5", 101),
    ]
    await library.add_messages(LIN.with_session("near"), dialogue)
    page = await find(library, "zeppelin museum idle talk", limit=50)
    by_key = {hit.key: hit for hit in page.results}
    assert by_key["r"].why.thread > by_key["f5"].why.thread
    assert by_key["r"].score > by_key["f5"].score


async def test_empty_results_have_explanation(library: Library) -> None:
    unknown = await find(library, "tea", Scope("nobody"))
    assert (unknown.results, unknown.total_found) == ((), 0)
    assert "there is no user 'nobody'" in unknown.message
    await chat(library)
    assert (await find(library, "zeppelin", mode="keyword")).message == "no match"
    filtered = await find(library, "tea", since=START + timedelta(days=99))
    assert filtered.message == "no stored row matches the filters"
    low = await find(library, "清汤", threshold=0.999)
    assert low.total_found == 0
    assert "below the threshold of 0.999; the best scores 0." in low.message


async def test_rows_below_the_threshold_fill_the_page(library: Library) -> None:
    """A threshold hides nothing while there is room, and says what it would have hidden."""
    texts = [f"tea {'and rain ' * n}" for n in range(12)]
    messages = [new_message(f"t{n}", "user", text, n) for n, text in enumerate(texts)]
    await library.add_messages(LIN, messages)
    everything = await find(library, "tea", mode="keyword", limit=12)
    threshold = (everything.results[2].score + everything.results[3].score) / 2
    page = await find(library, "tea", mode="keyword", limit=5, threshold=threshold)
    assert [hit.key for hit in page.results] == [hit.key for hit in everything.results[:5]]
    assert [hit.below_threshold for hit in page.results] == [False] * 3 + [True] * 2
    assert (page.total_found, page.below_threshold, page.next_cursor) == (3, 9, None)
    assert page.message == f"9 below the threshold of {threshold:g}"
    full = await find(library, "tea", mode="keyword", limit=2, threshold=threshold)
    assert not any(hit.below_threshold for hit in full.results)
    rest = await find(
        library, "tea", mode="keyword", limit=5, threshold=threshold, cursor=full.next_cursor
    )
    assert [hit.below_threshold for hit in rest.results] == [False] + [True] * 4


async def test_small_part_is_returned_whole(library: Library) -> None:
    texts = ["tea", "a walk", "the cellar is damp", "zebras"]
    messages = [new_message(f"p{n}", "user", text, n) for n, text in enumerate(texts)]
    await library.add_messages(LIN.with_session("small"), messages)
    later = [new_message(f"q{n}", "user", f"idle talk {n}", 1_000 + n) for n in range(12)]
    await library.add_messages(LIN.with_session("large"), later)
    period = {"since": START, "until": START + timedelta(hours=2)}
    for part in ({"session_id": "small"}, period):
        for mode in ("keyword", "hybrid"):
            page = await find(library, "tea", mode=mode, **part)
            assert {hit.key for hit in page.results} == {"p0", "p1", "p2", "p3"}, (part, mode)
            assert page.results[0].key == "p0"
    assert len((await find(library, "tea", mode="keyword", session_id="large")).results) == 0
    query = await find(library, "tea", mode="keyword", session_id="small", syntax="query")
    assert [hit.key for hit in query.results] == ["p0"]


async def test_total_found_ignores_limit(library: Library) -> None:
    await library.add_messages(LIN, [new_message(f"t{n}", "user", "tea", n) for n in range(12)])
    page = await find(library, "tea", mode="keyword", limit=3)
    assert (len(page.results), page.total_found) == (3, 12)


INVALID_REQUESTS: list[dict[str, Any]] = [
    {"query": "  "},
    {"query": "x" * 10_001},
    {"query": "nul\0"},
    {"query": "x", "limit": 0},
    {"query": "x", "limit": 201},
    {"query": "x", "threshold": 1.1},
    {"query": "x", "mode": "magic"},
    {"query": "x", "syntax": "sql"},
    {"query": "x", "kind": "dream"},
]


def test_invalid_request_is_rejected() -> None:
    def check(fields: dict[str, Any]) -> None:
        with pytest.raises(InvalidArgument):
            SearchRequest(**fields)

    check_each(INVALID_REQUESTS, check, lambda fields: repr(fields)[:60])
