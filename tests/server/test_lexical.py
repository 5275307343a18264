"""`POST /v1/messages/lexical_search`: messages by words."""

from typing import Any

import httpx

from tests.cases import read_rows

from .http_service import (
    HttpService,
    check_error,
    make_message,
    message_ids,
    timestamp,
    write_messages,
)

PATH = "/v1/messages/lexical_search"
CHAT = [
    make_message(1, "我不吃辣，火锅要清汤"),
    make_message(2, "好的，不吃辣"),
    make_message(3, "周末去吃火锅吧"),
    make_message(4, "Shall we book the hotpot restaurant?"),
    make_message(5, "hotpot hotpot hotpot"),
    make_message(6, "The configuration of the database"),
]


async def search(client: httpx.AsyncClient, query_text: str, **fields: Any) -> httpx.Response:
    return await client.post(PATH, json={"user_id": "ann", "query_text": query_text, **fields})


async def numbers(client: httpx.AsyncClient, query_text: str, **fields: Any) -> list[int]:
    return [int(key[1:]) for key in message_ids(await search(client, query_text, **fields))]


QUERIES: list[tuple[str, list[int]]] = read_rows("http", "lexical queries")
# What people type: emoji, signs, versions, invisible characters.
FREE_TEXT = [
    make_message(1, "I love it ❤️"),
    make_message(2, "love"),
    make_message(3, "好的👍🏽 v1.2.3-rc.1"),
    make_message(4, "火\u200b锅 <em>not a mark</em>"),
]
FREE_QUERIES: list[tuple[str, list[int]]] = read_rows("http", "free queries")


async def test_query_language_selects_messages(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *CHAT)
    for query, expected in QUERIES:
        assert sorted(await numbers(ann, query)) == expected, query


async def test_query_of_emoji_versions_and_invisible_characters(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *FREE_TEXT)
    for query, expected in FREE_QUERIES:
        assert sorted(await numbers(ann, query)) == expected, query


async def test_filters_apply_before_ranking(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *CHAT)
    query = "火锅 OR hotpot OR 不吃辣"
    for fields, expected in [
        ({"role": "user"}, {1, 3, 5}),
        ({"time_range": {"since": timestamp(3)}}, {3, 4, 5}),
        ({"time_range": {"until": timestamp(3)}}, {1, 2}),
        ({"time_range": {"since": timestamp(2), "until": timestamp(4)}, "role": "assistant"}, {2}),
        ({"time_range": {}}, {1, 2, 3, 4, 5}),
        ({}, {1, 2, 3, 4, 5}),
    ]:
        assert set(await numbers(ann, query, filter=fields)) == expected, fields


async def test_time_filters_every_search_and_recall(ann: httpx.AsyncClient) -> None:
    old = make_message(7, "hotpot 火锅", ts="2025-03-09T12:00:00Z")
    await write_messages(ann, "ann", *CHAT, old)
    for path in (PATH, "/v1/messages/semantic_search", "/v1/memories/search"):
        body = {"query" if "memories" in path else "query_text": "hotpot", "user_id": "ann"}
        for period in ("March 2025", "2025年3月"):
            answer = (await ann.post(path, json={**body, "time": period})).json()
            (item,) = answer.get("items") or answer["results"]
            assert (item.get("content") or item["memory"]) == old["content"]
        empty = (await ann.post(path, json={**body, "time": "2025-04"})).json()
        assert empty["nearest"] == old["ts"]
    request = {"query": "上次说的火锅？", "time": "2025-04"}
    result = (await ann.post("/v1/users/ann/recall", json=request)).json()
    assert "最近的是 2025-03-09" in result["handoff"]["follow_up_question"]


async def test_unknown_field_brings_the_similar_one(ann: httpx.AsyncClient) -> None:
    for path in ("/v1/memories/search", "/v1/users/ann/recall"):
        error = check_error(await ann.post(path, json={"q": "茶"}), 400, "INVALID_ARGUMENT")
        assert error["message"] == "q: is not a known field; did you mean `query`?"


async def test_most_relevant_messages_come_first(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *CHAT)
    answer = (await search(ann, "hotpot")).json()
    assert [item["message_id"] for item in answer["items"]] == ["m005", "m004"]
    first, second = answer["scores"]
    assert (first["message_id"], second["message_id"]) == ("m005", "m004")
    assert first["score"] > second["score"] > 0


async def test_ties_are_ordered_by_time_then_id(ann: httpx.AsyncClient) -> None:
    messages = [
        make_message(n, "same words", message_id=f"{n}{k}") for n in (1, 3, 2) for k in "cab"
    ]
    await write_messages(ann, "ann", *messages)
    hits = message_ids(await search(ann, "same"))
    assert hits == ["3a", "3b", "3c", "2a", "2b", "2c", "1a", "1b", "1c"]


async def test_highlights_mark_query_words(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *CHAT)
    answer = (await search(ann, '"不吃辣" AND 火锅')).json()
    (highlight,) = answer["highlights"]
    assert highlight["message_id"] == "m001"
    assert highlight["snippets"] == ["我<em>不吃辣</em>，<em>火锅</em>要清汤"]


async def test_offsets_cannot_be_forged_by_the_content(ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *FREE_TEXT)
    (highlight,) = (await search(ann, "火锅")).json()["highlights"]
    assert highlight["snippets"] == ["<em>火\u200b锅</em> <em>not a mark</em>"]
    assert highlight["offsets"] == [{"start": 0, "end": 3}]
    (highlight,) = (await search(ann, "👍")).json()["highlights"]
    assert highlight["offsets"] == [{"start": 2, "end": 4}]  # code points, not UTF-16 units


async def test_long_match_has_a_short_highlight(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1, "a" * 120_000))
    (highlight,) = (await search(ann, "aaaa*")).json()["highlights"]
    (snippet,) = highlight["snippets"]
    assert len(snippet) < 150
    assert highlight["offsets"] == [{"start": 0, "end": 120_000}]


async def test_expensive_query_is_refused(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", *(make_message(n, "我" * 9_990) for n in range(8)))
    answer = await search(ann, "我" * 9_990)
    error = check_error(answer, 400, "INVALID_ARGUMENT")
    assert "100,000,000" in error["message"]
    assert "shorter phrases" in error["message"]
    assert len(message_ids(await search(ann, "我" * 900))) == 8
    repeated = '"我 我 我" ' * 900
    assert len(message_ids(await search(ann, repeated))) == 8  # Equal words are searched once.


async def test_return_fields_limit_the_response(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", *CHAT)
    (item,) = (await search(ann, "周末", return_fields=["content"])).json()["items"]
    assert item == {"message_id": "m003", "content": "周末去吃火锅吧"}
    (item,) = (await search(ann, "周末", return_fields=[])).json()["items"]
    assert item == {"message_id": "m003"}
    fields = ["message_id", "ts", "role", "content"]
    (item,) = (await search(ann, "周末", return_fields=fields)).json()["items"]
    assert set(item) == set(fields)
    check_error(await search(ann, "周末", return_fields=["search_text"]), 400, "INVALID_ARGUMENT")


async def test_pages_cover_all_results_once(ann: httpx.AsyncClient) -> None:
    await write_messages(
        ann, "ann", *(make_message(n, f"tea {'tea ' * (n % 5)}") for n in range(60))
    )
    first = (await search(ann, "tea")).json()
    assert len(first["items"]) == 50
    second = (await search(ann, "tea", cursor=first["next_cursor"])).json()
    assert second["next_cursor"] is None
    items = [*first["items"], *second["items"]]
    scores = [score["score"] for score in (*first["scores"], *second["scores"])]
    assert len({item["message_id"] for item in items}) == 60
    assert scores == sorted(scores, reverse=True)


INVALID_REQUESTS: list[dict[str, Any]] = [
    {"query_text": ""},
    {"query_text": " \t\n"},
    {"query_text": "a AND"},
    {"query_text": "(a"},
    {"query_text": '"'},
    {"query_text": "x" * 10_001},
    {"query_text": "a\0b"},
    {"query_text": 5},
    {"query_text": None},
    {"query_text": "tea", "page_size": 0},
    {"query_text": "tea", "page_size": 201},
    {"query_text": "tea", "page_size": "5"},
    {"query_text": "tea", "page_size": True},
    {"query_text": "tea", "filter": {"role": "robot"}},
    {"query_text": "tea", "filter": {"session": "s"}},
    {"query_text": "tea", "filter": {"time_range": {"since": "soon"}}},
    {"query_text": "tea", "filter": {"time_range": {"since": timestamp(2), "until": timestamp(1)}}},
    {"query_text": "tea", "unknown": 1},
    {"query_text": "tea", "cursor": "c_9f2c1b0a"},
    {"query_text": "tea", "user_id": ""},
    {"query_text": "tea", "user_id": ["ann"]},
    {},
]


async def test_invalid_searches_are_refused(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", *CHAT)
    for fields in INVALID_REQUESTS:
        answer = await ann.post(PATH, json={"user_id": "ann", **fields})
        check_error(answer, 400, "INVALID_ARGUMENT")
    syntax = check_error(await search(ann, "tea AND (cup"), 400, "INVALID_ARGUMENT")
    assert syntax["details"] == {"position": 8}
