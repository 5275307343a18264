"""`search` over memories and messages: one ranking, sources, filters, and ids of messages."""

from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory
from memrecall.memory.results import StoredItem
from memrecall.scope import Permission
from memrecall.types import DIGESTS, NewMemory, Origin

from ..cases import check_each_async
from ..extractors import SentenceExtractor
from .conftest import make_settings

HOME = "user's home is Paris"  # what "home: Paris." states


async def search(memory: AsyncMemory, query: str, **options: Any) -> list[StoredItem]:
    """Return the results of a search of the bound user."""
    return (await memory.search(query, **options))["results"]


async def texts(memory: AsyncMemory, query: str, **options: Any) -> list[str]:
    return [item["memory"] for item in await search(memory, query, **options)]


@pytest.fixture
def ann(memory: AsyncMemory) -> AsyncMemory:
    return memory.bind(user_id="ann")


class TestWhatIsSearched:
    async def test_what_was_only_said_is_found_beside_memories(self, ann: AsyncMemory) -> None:
        await ann.add("home: Paris.")
        await ann.add({"role": "user", "content": "a kingfisher sat on the mooring post"})
        await ann.add({"role": "assistant", "content": "码头上有一只翠鸟。"})
        for query, text in (
            ("kingfisher", "a kingfisher sat on the mooring post"),
            ("翠鸟", "码头上有一只翠鸟。"),
        ):
            first = (await search(ann, query))[0]
            assert (first["kind"], first["memory"]) == ("message", text)
            assert first["source"] is None
            assert first["created_at"]
            assert set(await texts(ann, query, kinds="memory")) <= {HOME}
        assert {item["kind"] for item in await search(ann, "Paris kingfisher")} == {
            "memory",
            "message",
        }

    async def test_a_memory_and_its_message_are_one_result(self, ann: AsyncMemory) -> None:
        (message_id,) = (await ann.add("home: Paris. I like it there."))["messages"]
        page = await ann.search("Paris")
        (item,) = page["results"]
        assert (item["kind"], item["memory"], page["total_found"]) == ("memory", HOME, 1)
        source = item["source"]
        assert source is not None
        assert (source["id"], source["text"]) == (message_id, "home: Paris. I like it there.")
        assert source.keys() == {"id", "text", "role", "speaker", "created_at"}
        (message,) = await search(ann, "Paris", kinds="message")
        assert (message["id"], message["source"]) == (message_id, None)
        (memory,) = await search(ann, "Paris", kinds="memory")
        assert memory["source"] == source

    async def test_the_better_score_of_both_counts(self, ann: AsyncMemory) -> None:
        await ann.add("home: Paris. A kingfisher sat on the mooring post.")
        await ann.add("name: Ann.")
        for options in ({}, {"rerank": False}):
            first, *others = await search(ann, "kingfisher on the post", **options)
            assert first["memory"] == HOME
            assert first["source"] is not None
            assert "kingfisher" in first["source"]["text"]
            assert all(first["score"] > other["score"] for other in others)

    async def test_a_message_lifts_only_the_best_of_its_memories(self, ann: AsyncMemory) -> None:
        await ann.add("home: Paris. pet: kingfisher.")
        results = await search(ann, "kingfisher")
        assert [item["memory"] for item in results] == ["user's pet is kingfisher", HOME]
        assert results[0]["score"] > results[1]["score"]
        assert results[0]["source"] == results[1]["source"]

    async def test_a_superseded_memory_leaves_its_message(self, ann: AsyncMemory) -> None:
        await ann.add("home: Paris.")
        await ann.add("home: Oslo.")
        kinds = {item["memory"]: item["kind"] for item in await search(ann, "home")}
        assert kinds == {"home: Paris.": "message", "user's home is Oslo": "memory"}

    async def test_messages_of_a_digest_stay_results(self, ann: AsyncMemory) -> None:
        ids = (await ann.add(["tea in the garden", "tea in the kitchen"]))["messages"]
        library = (await ann.recaller()).library
        digest = NewMemory(
            content="tea, garden and kitchen", memory_type=DIGESTS[0], source_message_ids=tuple(ids)
        )
        scope = (await ann.recaller()).scope
        await library.add_memories(scope, [digest], origin=Origin.USER, actor="test")
        results = await search(ann, "tea")
        assert sorted(item["kind"] for item in results) == ["memory", "message", "message"]
        assert [item["source"] for item in results] == [None] * 3

    async def test_an_unknown_kind_is_refused(self, ann: AsyncMemory) -> None:
        with pytest.raises(InvalidArgument, match="kinds 'dreams'"):
            await ann.search("tea", kinds="dreams")  # type: ignore[arg-type]


async def test_filters_apply_to_memories_and_messages(ann: AsyncMemory) -> None:
    await ann.add("home: Paris.", metadata={"topic": "city", "year": 2024}, session_id="s1")
    await ann.add("a day in Paris", metadata={"topic": "trip", "year": 2026})
    await ann.add("another day in Paris")
    cases: list[tuple[dict[str, Any], list[str]]] = [
        ({"topic": "city"}, [HOME]),
        ({"topic": "trip"}, ["a day in Paris"]),
        ({"year": {"gte": 2025}}, ["a day in Paris"]),
        ({"topic": "*"}, ["a day in Paris", HOME]),
        ({"topic": None}, ["another day in Paris"]),
        ({"not": {"topic": "city"}}, ["a day in Paris", "another day in Paris"]),
        ({"memory_type": "message", "topic": "trip"}, ["a day in Paris"]),
        ({"layer": "long"}, [HOME]),
        ({"subject": {"ne": "nobody"}, "pinned": False, "topic": "trip"}, ["a day in Paris"]),
        ({"content": {"contains": "another"}}, ["another day in Paris"]),
        ({"created_at": {"lt": "2000-01-01"}}, []),
        ({"session_id": "s1"}, [HOME]),
    ]

    async def check(case: tuple[dict[str, Any], list[str]]) -> None:
        filters, expected = case
        assert sorted(await texts(ann, "Paris", filters=filters)) == expected

    await check_each_async(cases, check)
    assert await texts(ann, "Paris", filters={"topic": "city"}, kinds="message") == ["home: Paris."]
    assert await texts(ann, "Paris", filters={"topic": "trip"}, kinds="memory") == []
    assert len(await texts(ann, "Paris", show_expired=True)) == 3


async def test_a_withheld_memory_hides_its_message(location: str) -> None:
    settings = make_settings(location)
    async with AsyncMemory(
        settings=settings, user_id="ann", permissions=[Permission.SENSITIVE]
    ) as trusted:
        plain = trusted.bind(permissions=[])
        added = await trusted.add("the vault code is 4711", infer=False, sensitive=True)
        secret = added["results"][0]["id"]
        await trusted.add("the vault is in the cellar", infer=False)
        library, scope = (await trusted.recaller()).library, (await trusted.recaller()).scope
        open_fact = NewMemory(content="has a vault", source_message_ids=tuple(added["messages"]))
        await library.add_memories(scope, [open_fact], origin=Origin.USER, actor="test")

        assert "the vault code is 4711" in await texts(trusted, "vault")
        for options in ({}, {"kinds": "message"}, {"rerank": False}, {"kinds": "memory"}):
            page = await plain.search("vault code", **options)
            assert page["results"], options
            assert "4711" not in str(page["results"]), options
        await trusted.delete(secret)
        assert "4711" not in str(await search(plain, "vault code"))


class TestIdsOfMessages:
    async def test_get_and_delete_take_the_id_of_a_message(self, memory: AsyncMemory) -> None:
        await memory.add("the kingfisher is blue", "ann")
        (found,) = (await memory.search("kingfisher", "ann"))["results"]
        assert found["kind"] == "message"
        shown = await memory.get(found["id"])
        assert shown
        assert shown.items() <= found.items()
        report = await memory.delete(found["id"])
        assert (report["event"], report["memories"], report["messages"]) == ("DELETE", [], [])
        assert await memory.get(found["id"]) is None
        assert (await memory.search("kingfisher", "ann"))["results"] == []
        await memory.undo(found["id"])
        assert await memory.get(found["id"]) == shown

    async def test_update_refuses_a_message(self, ann: AsyncMemory) -> None:
        (key,) = (await ann.add("the kingfisher is blue"))["messages"]
        with pytest.raises(InvalidArgument, match=r"is a message.*Update the memory"):
            await ann.update(key, "it is green")
        assert await texts(ann, "kingfisher") == ["the kingfisher is blue"]


@pytest.mark.parametrize(
    ("said", "questions"),
    [
        ("I live in Oslo.", ["Does the user own a boat?", "Do I own a boat?"]),
        ("I live in Oslo.", ["What is the user's car?", "What is my car?"]),
        ("我住在上海。", ["用户有没有船？", "我有没有船？"]),
        ("我住在上海。", ["用户的车是什么牌子的？", "我的车是什么牌子的？"]),
    ],
)
async def test_the_user_in_a_query_matches_no_label(
    location: str, said: str, questions: list[str]
) -> None:
    settings, extractor = make_settings(location), SentenceExtractor()
    async with AsyncMemory(settings=settings, extractor=extractor, user_id="ann") as memory:
        await memory.add(said)
        await (await memory._open()).library.vectors.settle()
        for options in ({"kinds": "memory"}, {"kinds": "all"}):
            scores = [
                {item["memory"]: item["score"] for item in await search(memory, query, **options)}
                for query in questions
            ]
            assert scores[0] == pytest.approx(scores[1], abs=0.1)
