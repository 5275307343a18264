"""What becomes of the memories that a model's facts replace: ended, or kept and reported."""

from datetime import timedelta
from typing import Any

import pytest

from memrecall.memory.results import AddedItems

from .helpers import answer, events, memories, open_memory, replacing, said, stated
from .transcripts import NOW

RENT = answer(facts=[stated("User's rent is 500 euros.", 1)])
PAID = said("My rent is 500 euros.")


async def add_twice(location: str, step: Any, *messages: dict[str, Any]) -> AddedItems:
    """Return the report of an `add` after the rent is known; the memory of it must stay."""
    async with open_memory(location, [RENT, step]) as (memory, _):
        await memory.add([PAID])
        report = await memory.add(list(messages))
        assert "User's rent is 500 euros." in await memories(memory)
    return report


async def test_a_number_that_was_not_shown_is_reported(location: str) -> None:
    fact = stated("User likes tea.", 2, replaces=[99])
    report = await add_twice(location, answer(facts=[fact]), said("I like tea."))
    assert events(report) == [("ADD", "User likes tea.")]
    assert report["problems"] == [
        "memories: 'User likes tea.' replaces a memory that was not shown: 99"
    ]


async def test_a_request_to_forget_that_names_no_memory_is_reported(location: str) -> None:
    fact = stated("User's phone number", 2, type="retraction")
    report = await add_twice(location, answer(facts=[fact]), said("Forget my phone number."))
    assert report["results"] == []
    assert report["problems"] == [
        'memories: "User\'s phone number" ends nothing: it names no known memory'
    ]


async def test_a_request_to_forget_without_the_users_words_is_reported(location: str) -> None:
    step = replacing(
        "User's rent is 500 euros.", text="User's rent", type="retraction", sources=[2]
    )
    messages = [said("Forget the rent.", role="assistant"), said("Hm.")]
    report = await add_twice(location, step, *messages)
    assert report["results"] == []
    (problem,) = report["problems"]
    assert "500 euros" in problem
    assert "only its user can have it forgotten" in problem


async def test_a_request_to_forget_what_was_said_later_is_reported(location: str) -> None:
    step = replacing(
        "User's rent is 500 euros.", text="User's rent", type="retraction", sources=[1]
    )
    earlier = said("Forget the rent.", at=NOW - timedelta(days=9))
    report = await add_twice(location, step, earlier)
    assert report["results"] == []
    (problem,) = report["problems"]
    assert problem.endswith("is not ended: it was said later")


async def test_an_unchecked_fact_is_stored_beside_what_it_replaces(location: str) -> None:
    step = replacing("User's rent is 500 euros.", text="User's rent is 900 euros.", sources=[2])
    async with open_memory(location, [RENT, step, step]) as (memory, _):
        known = (await memory.add([PAID]))["results"][0]["id"]
        report = await memory.add([said("Rents are mad here.")])
        (item,) = report["results"]
        assert (item["event"], item["conflicts_with"]) == ("ADD", [{"id": known}])
        assert item["reason"] == "it is unchecked, so this is kept: User's rent is 500 euros."

        both = {item["memory"]: item for item in (await memory.get_all())["results"]}
        assert both["User's rent is 500 euros."]["valid_to"] is None
        claim = both["User's rent is 900 euros."]
        assert (claim["checked"], claim["doubts"]) == (False, ["number"])
        assert claim["conflicts_with"] == [{"id": known, "memory": "User's rent is 500 euros."}]
        messages = (await memory.search("rent euros", kinds="messages"))["results"]
        assert [found.get("valid_to") for found in messages] == [None] * len(messages)
        again = await memory.add([said("Rents are mad, I say.")])
        assert (again["results"], len(await memories(memory))) == ([], 2)


async def test_a_checked_fact_ends_the_memory_and_the_unchecked_one(location: str) -> None:
    def step(*sources: int) -> Any:
        text = "User's rent is 900 euros."
        return replacing("User's rent is 500 euros.", text=text, sources=list(sources))

    async with open_memory(location, [RENT, step(2), step(3)]) as (memory, _):
        await memory.add([PAID])
        await memory.add([said("Rents are mad here.")])
        report = await memory.add([said("It is 900 now.", at=NOW + timedelta(days=1))])
        assert events(report) == [("UPDATE", "User's rent is 900 euros.")]
        (item,) = (await memory.get_all())["results"]
        assert (item["checked"], item["conflicts_with"]) == (True, [])


@pytest.mark.parametrize(
    ("message", "text", "event"),
    [
        ("It went up by 50.", "User's rent rose from 500 to 550 euros.", "UPDATE"),
        ("I moved out.", "User no longer pays 500 euros of rent.", "UPDATE"),
        ("It went up by 50.", "User's rent rose from 500 to 570 euros.", "ADD"),
    ],
)
async def test_a_fact_may_say_what_the_memory_that_it_replaces_said(
    location: str, message: str, text: str, event: str
) -> None:
    step = replacing("User's rent is 500 euros.", text=text, sources=[2])
    async with open_memory(location, [RENT, step]) as (memory, _):
        await memory.add([PAID])
        assert events(await memory.add([said(message)])) == [(event, text)]
