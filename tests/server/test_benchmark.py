"""The benchmark of the service: what it compares is the same work, and it sees what fails."""

import asyncio
import json
import socket
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from benchmarks.calls import USER, all_calls, nothing
from benchmarks.corpus import load_corpus
from benchmarks.databases import write
from benchmarks.load import Connection, Failed, Load, put_load, put_pairs
from memrecall.server.running import _bind

from .site import Site

NOWHERE = Path("/nonexistent")


async def test_both_sides_do_the_same_work(lite: Site) -> None:
    corpus = load_corpus(NOWHERE, NOWHERE)
    turns = list(corpus.turns(120))
    await write(lite.library, USER, turns)
    key = await lite.key(USER)
    connection = await Connection.open(lite.url)
    assert json.loads(await connection.ask(nothing().request(key)))["status"] == "ok"
    calls = all_calls(corpus, turns)
    assert set(calls) == {"range read", "neighbours", "lexical", "semantic"}
    for kind, questions in calls.items():
        found = 0
        for question in questions[:10]:
            there = json.loads(await connection.ask(question.request(key)))
            here: Any = await question.run(lite.library)
            ids = [getattr(item, "message", item).message_id for item in here.items]
            assert [item["message_id"] for item in there["items"]] == ids, kind
            found += len(ids)
        assert found, kind
    await connection.close()


async def test_an_answer_that_is_not_good_is_a_failure(lite: Site) -> None:
    connection = await Connection.open(lite.url)
    with pytest.raises(Failed, match="status 404"):
        await connection.ask(b"GET /nowhere HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    await connection.close()


async def test_load_is_counted() -> None:
    async def good(_: int) -> None:
        await asyncio.sleep(0.01)

    async def bad(number: int) -> None:
        if number > 3:
            raise Failed("status 503")

    load = await put_load([good, bad], 0.2)
    assert load.failures == {"status 503": 1}
    assert 5 <= len(load.times) <= 30
    assert load.rate > 0
    assert 0 < load.milliseconds(50) < load.milliseconds(99)


async def test_pairs_are_pairs() -> None:
    async def slow(_: int) -> None:
        await asyncio.sleep(0.01)

    async def fast(_: int) -> None:
        await asyncio.sleep(0)

    there, here = await put_pairs(slow, fast, 0.1, lambda: 0.0)
    assert len(there.times) == len(here.times) > 3
    assert there.milliseconds(50) > here.milliseconds(50)
    assert Load().rate == 0.0


def test_no_answer_is_held_back_by_the_network() -> None:
    """Only where a socket names its protocol does asyncio turn Nagle's algorithm off."""
    with closing(_bind("127.0.0.1", 0)) as listener:
        assert listener.proto == socket.IPPROTO_TCP
