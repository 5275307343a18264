"""`POST /v1/messages/semantic_search`: messages by meaning."""

from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.errors import EmbedderFailed

from .http_service import (
    HttpService,
    check_error,
    make_message,
    message_ids,
    open_library,
    serve_in_process,
    timestamp,
    write_messages,
)

PATH = "/v1/messages/semantic_search"


async def search(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post(PATH, json={"user_id": "ann", **fields})


async def test_most_similar_messages_come_first_with_cosine(
    ann: httpx.AsyncClient, service: HttpService
) -> None:
    texts = ["green tea in the morning", "tea", "a train to Paris", "茶和咖啡", "black tea"]
    await write_messages(ann, "ann", *(make_message(n, text) for n, text in enumerate(texts)))
    embedder = service.library.embedder
    assert embedder is not None
    question, *vectors = await embedder.embed(["tea", *texts])

    items = (await search(ann, query_text="tea")).json()["items"]

    cosines = {f"m{n:03}": float(question @ vector) for n, vector in enumerate(vectors)}
    assert {item["message_id"] for item in items} == set(cosines)
    scores = [item["semantic_score"] for item in items]
    assert scores == sorted(scores, reverse=True)
    for item in items:
        assert abs(item["semantic_score"] - cosines[item["message_id"]]) < 2e-3
    assert items[0]["message_id"] == "m001"
    assert items[0]["semantic_score"] == 1.0
    assert items[0].keys() >= {"message_id", "ts", "user_id", "role", "content"}


async def test_query_embedding_and_query_text_give_same_results(
    ann: httpx.AsyncClient, service: HttpService
) -> None:
    await write_messages(ann, "ann", *(make_message(n, f"tea number {n}") for n in range(6)))
    assert service.library.embedder is not None
    (vector,) = await service.library.embedder.embed(["tea number 3"])
    by_text = await search(ann, query_text="tea number 3")
    for factor in (1.0, 250.0, 1e-30):  # the cosine does not depend on the length of a vector
        scaled = [float(number) * factor for number in vector]
        assert (await search(ann, query_embedding=scaled)).json() == by_text.json()


async def test_top_k_defaults_to_twenty(service: HttpService, ann: httpx.AsyncClient) -> None:
    await write_messages(ann, "ann", *(make_message(n, f"tea {n}") for n in range(30)))
    await service.library.vectors.settle()
    assert len(message_ids(await search(ann, query_text="tea"))) == 20
    assert len(message_ids(await search(ann, query_text="tea", top_k=3))) == 3
    assert len(message_ids(await search(ann, query_text="tea", top_k=200))) == 30


async def test_ties_are_ordered_by_time_then_id(
    service: HttpService, ann: httpx.AsyncClient
) -> None:
    messages = [
        make_message(n, "same words", message_id=f"{n}{k}") for n in (1, 3, 2) for k in "cab"
    ]
    await write_messages(
        ann, "ann", *messages, *(make_message(n, f"other {n}") for n in range(9, 40))
    )
    await service.library.vectors.settle()
    hits = message_ids(await search(ann, query_text="same words", top_k=5))
    assert hits == ["3a", "3b", "3c", "2a", "2b"]


async def test_filters_and_min_score_select_messages(ann: httpx.AsyncClient) -> None:
    await write_messages(
        ann, "ann", *(make_message(n, "tea" if n < 4 else "train") for n in range(6))
    )
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"min_score": 0.99}, ["m003", "m002", "m001", "m000"]),
        ({"min_score": 1.0, "top_k": 2}, ["m003", "m002"]),
        ({"min_score": 0.99, "filter": {"role": "user"}}, ["m003", "m001"]),
        ({"top_k": 1, "filter": {"time_range": {"until": timestamp(2)}}}, ["m001"]),
        ({"min_score": 0.99, "filter": {"time_range": {"since": timestamp(2)}}}, ["m003", "m002"]),
        ({"filter": {"role": "tool"}}, []),
    ]
    for fields, expected in cases:
        assert message_ids(await search(ann, query_text="tea", **fields)) == expected, fields


async def test_return_fields_limit_the_response(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1, "tea"))
    (item,) = (await search(ann, query_text="tea", return_fields=["role"])).json()["items"]
    assert item == {"message_id": "m001", "role": "user", "semantic_score": 1.0}


INVALID_REQUESTS: list[dict[str, Any]] = [
    {},
    {"query_text": "tea", "query_embedding": [1.0] * 64},
    {"query_text": " "},
    {"query_embedding": []},
    {"query_embedding": [1.0] * 63},
    {"query_embedding": [0.0] * 64},
    {"query_embedding": ["1.0"] * 64},
    {"query_embedding": [[1.0] * 64]},
    {"query_embedding": [None] * 64},
    {"query_text": "tea", "top_k": 0},
    {"query_text": "tea", "top_k": 201},
    {"query_text": "tea", "top_k": 2.5},
    {"query_text": "tea", "min_score": 1.5},
    {"query_text": "tea", "min_score": "0.5"},
    {"query_text": "tea", "page_size": 5},
    {"query_text": "tea", "return_fields": ["vector"]},
]


async def test_invalid_semantic_searches_are_refused(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1, "tea"))
    for fields in INVALID_REQUESTS:
        check_error(await search(ann, **fields), 400, "INVALID_ARGUMENT")
    for number in ("NaN", "Infinity", "1e999"):
        text = f'{{"user_id": "ann", "query_embedding": [{number}{", 1.0" * 63}]}}'
        headers = {"content-type": "application/json"}
        answer = await ann.post(PATH, content=text, headers=headers)
        check_error(answer, 400, "INVALID_ARGUMENT")


async def test_embedding_length_is_checked_before_first_vector(sqlite_service: HttpService) -> None:
    from memrecall.scope import Scope
    from memrecall.types import NewMessage, Role

    ann = await sqlite_service.client_with_key("ann")
    unembedded = NewMessage(role=Role.USER, content="tea")
    await sqlite_service.library.store.timeline(Scope("ann")).add([unembedded])
    detail = check_error(await search(ann, query_embedding=[1.0] * 63), 400, "INVALID_ARGUMENT")
    assert "64" in detail["message"]


async def test_embedder_failure_is_reported(
    sqlite_service: HttpService, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def fail(*_: object) -> None:
        raise EmbedderFailed("http://10.0.0.7/embed does not answer")

    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", make_message(1, "tea"))
    await sqlite_service.library.vectors.settle()
    monkeypatch.setattr(type(sqlite_service.library.embedder), "embed", fail)

    detail = check_error(await search(ann, query_text="coffee"), 503, "UNAVAILABLE")

    assert "10.0.0.7" not in str(detail)
    await write_messages(ann, "ann", make_message(2, "coffee"))
    answer = await search(ann, query_embedding=[1.0] * 64)
    assert (message_ids(answer), answer.json()["unembedded"]) == (["m001"], 1)


async def test_semantic_search_requires_an_embedder(tmp_path: Path) -> None:
    async with (
        open_library(str(tmp_path / "a.db"), tmp_path, embedder="none") as library,
        serve_in_process(library) as service,
    ):
        ann = await service.client_with_key("ann")
        await write_messages(ann, "ann", make_message(1, "tea"))
        answer = await search(ann, query_text="tea")
        check_error(answer, 503, "UNAVAILABLE")
        assert int(answer.headers["retry-after"]) > 0
