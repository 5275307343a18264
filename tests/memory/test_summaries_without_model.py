"""Summaries without a model are computed when they are read: nothing is stored, no job runs."""

from collections.abc import AsyncIterator
from typing import Any

import pytest

from memrecall.memory import AsyncMemory
from memrecall.scope import Scope
from memrecall.store import StoredSummary
from memrecall.text_length import estimate_tokens
from memrecall.types import NewMessage, Role, parse_time
from tests.counting import recorded_statements

from .conftest import make_settings
from .word_extractor import WordExtractor

SESSION = Scope("ann", session_id="s")


@pytest.fixture
async def memory(location: str) -> AsyncIterator[AsyncMemory]:
    """A memory without a model, bound to a session."""
    settings = make_settings(location)
    async with AsyncMemory(settings=settings, user_id="ann", session_id="s") as memory:
        yield memory


def tickets(count: int, first: int = 0) -> list[dict[str, str]]:
    """Return messages that are all worth a place in a summary."""
    return [
        {"role": "user", "content": f"I bought {n} tickets for day {n}.", "message_id": f"m{n}"}
        for n in range(first, first + count)
    ]


def writes(statements: list[str]) -> list[str]:
    return [s for s in statements if not s.lstrip().upper().startswith(("SELECT", "WITH"))]


async def test_nothing_is_stored_and_no_job_runs(memory: AsyncMemory) -> None:
    for start in range(0, 60, 2):
        await memory.add(tickets(2, start))
    resources = await memory._open()
    await memory.resume()
    assert resources.ingestor.summaries._tasks == {}
    await resources.library.vectors.settle()

    with recorded_statements() as statements:
        (summary,) = (await memory.summarize())["results"]
        state = await memory.state(200)

    assert writes(statements) == []
    assert len(statements) < 20
    assert (summary["by"], summary["level"]) == ("text", "session")
    assert (summary["first_sequence_no"], summary["last_sequence_no"]) == (1, 60)
    assert 0 < len(summary["text"]) <= 1_200
    assert state["summaries"] == 1
    assert await resources.library.store.session_state(SESSION).summaries() == []
    assert await memory.jobs() == []


async def test_summary_is_the_same_without_new_messages_and_has_new_ones(
    memory: AsyncMemory,
) -> None:
    await memory.add(tickets(3))
    first = await memory.summarize()
    assert await memory.summarize(whole=False) == first
    assert first["new"] == 0
    await memory.add("We moved to Lisbon in May.")
    assert "Lisbon" in str(await memory.summarize())


async def test_empty_session_has_no_summary(memory: AsyncMemory) -> None:
    assert (await memory.summarize())["results"] == []
    assert (await memory.state(100))["text"] == ""


@pytest.mark.parametrize("text", ["I bought {} tickets for Oslo.", "我买了{}张去奥斯陆的票。"])
async def test_state_shows_last_messages_after_a_summary_of_those_before(
    memory: AsyncMemory, text: str
) -> None:
    await memory.add([text.format(number) for number in range(60)])
    for budget in (20, 60, 100, 300, 500):
        state = await memory.state(budget)
        assert estimate_tokens(state["text"]) <= state["tokens"] <= budget
        assert state["text"].endswith(text.format(59))
        if budget >= 100:
            ((first, last),) = state["covers"]
            assert (first, last) == (1, 60 - state["messages"])
            assert text.format(0) in state["text"]  # The summary starts with the first message.
            assert text.format(last - 1) not in state["text"]
    everything = await memory.state(100_000)
    assert (everything["messages"], everything["summaries"]) == (60, 0)


async def test_what_a_summary_reads_is_bounded(memory: AsyncMemory) -> None:
    await memory.add(tickets(450))
    (summary,) = (await memory.summarize())["results"]
    assert (summary["first_sequence_no"], summary["last_sequence_no"]) == (251, 450)
    state = await memory.state(100_000)
    assert (state["messages"], state["covers"]) == (200, [[51, 250]])
    await memory.add(["word " * 1_500, "Blue is my colour. " * 2_000])
    (summary,) = (await memory.summarize())["results"]
    assert summary["first_sequence_no"] == 452
    assert len(summary["text"]) <= 1_200


async def test_deleted_message_is_in_no_summary_until_undo(memory: AsyncMemory) -> None:
    await memory.add(tickets(4))
    note = (await memory.add("Remember that I live in Lisbon."))["results"][0]["id"]
    assert "Lisbon" in str(await memory.summarize())
    await memory.forget(note, sources=True)
    assert "Lisbon" not in str([await memory.summarize(), await memory.state(1_000)])
    await memory.undo(note)
    assert "Lisbon" in str(await memory.summarize())
    await memory.delete_message("m2")
    assert "I bought 2 tickets" not in str([await memory.summarize(), await memory.state(30)])


async def test_experience_is_computed_once_and_goes_with_any_of_its_messages(
    memory: AsyncMemory,
) -> None:
    await memory.add(tickets(150))
    ended = await memory.end_session(success=True)
    assert ended["summaries"] == 0
    experience = await memory.get(ended["experience"])
    assert experience is not None
    assert "I bought 149 tickets" in experience["memory"] or "I bought 0 " in experience["memory"]
    assert await memory.get(ended["experience"]) == experience
    assert await memory.jobs() == []
    await memory.delete_message("m1")  # too early to be named as a source
    assert await memory.get(ended["experience"]) is None


async def test_session_of_several_projects_is_summarised_in_each(location: str) -> None:
    async with AsyncMemory(settings=make_settings(location)) as memory:
        for project, text in (("shop", "Kamal deploys it."), ("blog", "Hugo builds it.")):
            await memory.add(text, "ann", session_id="s", project=project)
        shop = str(await memory.bind(user_id="ann", project="shop").summarize(session_id="s"))
        assert "Kamal" in shop
        assert "Hugo" not in shop


async def test_what_earlier_versions_stored_is_kept_and_not_used(memory: AsyncMemory) -> None:
    await memory.add(tickets(6))
    state = (await memory._open()).library.store.session_state(SESSION)
    old = StoredSummary(0, 1, 1, 6, "of the rules", "rules", parse_time("2026-01-01"))
    await state.add_summaries([old])
    assert "of the rules" not in str([await memory.summarize(), await memory.state(1_000)])
    assert await state.summaries() == [old]
    await memory.delete_message("m3")
    assert await state.summaries() == []


async def test_model_goes_on_where_nothing_was_stored(location: str) -> None:
    """With a model, a session that began without one is summarised from its start."""
    settings = make_settings(location)
    async with AsyncMemory(settings=settings, user_id="ann", session_id="s") as memory:
        library = (await memory._open()).library
        messages = [NewMessage(content=f"m{n}", role=Role.USER) for n in range(6)]
        await library.add_messages(SESSION, messages)
    options: dict[str, Any] = {"user_id": "ann", "session_id": "s", "extractor": WordExtractor()}
    async with AsyncMemory(settings=settings, **options) as memory:
        (turns,) = (await memory.summarize(whole=False))["results"]
    assert turns["text"] == "sum(m0+m1+m2+m3+m4+m5)"
