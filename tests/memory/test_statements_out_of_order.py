"""What was said later stays current, in whatever order the messages are added."""

import json
import random
from collections.abc import AsyncIterator, Sequence
from itertools import permutations
from typing import Any

import pytest

from memrecall.extraction.model import ModelExtractor
from memrecall.memory import AsyncMemory
from memrecall.testing import ScriptedClient, say
from tests.cases import check_each_async, read_rows
from tests.extractors import SentenceExtractor

from ..library.documented_graphs import documented_graphs
from .conftest import make_settings

Said = tuple[str, str]  # the day of a message in 2026, and its text
MOST_ORDERS = 3  # that are tried for each list

SLOTS: list[list[Said]] = read_rows("changes", "slots")


@pytest.fixture(params=["tables", "documented"])
async def memory(location: str, request: pytest.FixtureRequest) -> AsyncIterator[AsyncMemory]:
    """Memory with its graph in each kind of database."""
    graphs = documented_graphs() if request.param == "documented" else None
    if graphs and location.startswith("postgresql"):
        pytest.skip("a graph outside the store does not depend on the database")
    async with AsyncMemory(
        settings=make_settings(location), extractor=SentenceExtractor(), graph_db=graphs
    ) as created:
        yield created


def message(said: Said) -> dict[str, str]:
    day, text = said
    return {"role": "user", "content": text, "timestamp": f"2026-{day}T09:00:00Z"}


async def add(memory: AsyncMemory, user: str, statements: Sequence[Said]) -> None:
    for said in statements:
        assert not (await memory.add([message(said)], user))["problems"]


async def relations(memory: AsyncMemory, user: str, **options: Any) -> set[tuple[str, str]]:
    """Return the relations of a user that hold."""
    found = (await memory.graph("user", user, **options))["relations"]
    return {(item["relationship"], item["destination"]) for item in found}


async def texts(memory: AsyncMemory, user: str) -> list[str]:
    return sorted(item["memory"] for item in (await memory.get_all(user))["results"])


async def state(memory: AsyncMemory, user: str) -> dict[str, Any]:
    """Return everything that is known of a user, now and then."""
    items = (await memory.get_all(user, superseded=True))["results"]
    said = {item["id"]: item["memory"] for item in items}
    known = [
        (
            *(item[name] for name in ("memory", "valid_from", "valid_to")),
            *(said.get(str(item[link])) for link in ("supersedes", "superseded_by")),
        )
        for item in items
    ]
    days = ("2026-02-01T00:00:00Z", "2026-04-01T00:00:00Z", "2026-05-20T00:00:00Z")
    return {
        "memories": sorted(known),
        "relations": await relations(memory, user),
        "then": [await relations(memory, user, as_of=day) for day in days],
    }


async def test_order_of_adding_does_not_change_what_is_known(memory: AsyncMemory) -> None:
    cases = []
    for number, statements in enumerate(SLOTS):
        await add(memory, f"in order {number}", statements)
        expected = await state(memory, f"in order {number}")
        assert len(expected["relations"]) == 1
        assert len(expected["memories"]) == len(statements)
        *orders, newest_first = list(permutations(statements))[1:]
        chosen = random.Random(number).sample(orders, min(MOST_ORDERS - 1, len(orders)))  # noqa: S311
        cases += [(order, expected) for order in (*chosen, newest_first)]

    async def check(case: tuple[tuple[Said, ...], dict[str, Any]]) -> None:
        order, expected = case
        user = " ".join(text for _, text in order)
        await add(memory, user, order)
        assert await state(memory, user) == expected

    await check_each_async(cases, check)


async def test_older_statement_is_history_and_undo_walks_back_through_it(
    memory: AsyncMemory,
) -> None:
    (porto,) = (await memory.add("I live in Porto.", "ann"))["results"]
    result = await memory.add("I moved to Faro.", "ann", timestamp="2026-10-01")
    (faro,) = result["results"]
    assert faro["event"] == "ADD"
    assert faro["reason"] == "it was said before: User lives in Porto."
    assert await texts(memory, "ann") == ["User lives in Porto."]
    assert await relations(memory, "ann") == {("lives_in", "Porto")}
    assert await relations(memory, "ann", as_of="2026-10-02T00:00:00Z") == {("lives_in", "Faro")}
    await memory.undo(porto["id"])
    assert await texts(memory, "ann") == ["User moved to Faro."]
    assert await relations(memory, "ann") == {("lives_in", "Faro")}


async def test_undo_of_the_middle_leaves_one_truth(memory: AsyncMemory) -> None:
    first, middle, last = SLOTS[0]
    await add(memory, "ann", [first, last, middle])
    (current,) = (await memory.get_all("ann"))["results"]
    for place in ("Faro", "Porto"):
        await memory.undo(current["id"])
        assert await relations(memory, "ann") == {("lives_in", place)}
        assert [place in text for text in await texts(memory, "ann")] == [True]


async def test_older_words_take_nothing_back(memory: AsyncMemory) -> None:
    await memory.add("I live in Porto.", "ann")
    await memory.add("Forget where I live.", "ann", timestamp="2026-10-01")
    assert "User lives in Porto." in await texts(memory, "ann")
    assert ("lives_in", "Porto") in await relations(memory, "ann")


async def test_correction_is_later_than_the_messages_before_it(memory: AsyncMemory) -> None:
    await add(memory, "ann", SLOTS[0][:1])
    (home,) = (await memory.get_all("ann"))["results"]
    await memory.update(home["id"], "User lives in Bern.")
    await add(memory, "ann", SLOTS[0][1:])
    assert await texts(memory, "ann") == ["User lives in Bern."]


async def test_older_statement_by_a_model_is_history(location: str) -> None:
    def answer(place: str, **fields: Any) -> Any:
        fact = {"text": f"User lives in {place}.", "about": "user", "field": "home", **fields}
        relation = {"source": "user", "relationship": "lives_in", "destination": place}
        return say(json.dumps({"facts": [fact], "relations": [relation]}))

    client = ScriptedClient([answer("Porto"), answer("Faro", replaces=[1])])
    extractor = ModelExtractor(client)
    async with AsyncMemory(settings=make_settings(location), extractor=extractor) as memory:
        await memory.add("I live in Porto.", "ann")
        result = await memory.add("I moved to Faro.", "ann", timestamp="2026-10-01")
        assert result["problems"] == []
        assert await texts(memory, "ann") == ["User lives in Porto."]
        assert await relations(memory, "ann") == {("lives_in", "Porto")}
