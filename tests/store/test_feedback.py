"""Feedback on recalls, and the labelled questions that it makes."""

from datetime import UTC, datetime
from typing import Any

import pytest

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Scope
from memrecall.store import Feedback, Store
from memrecall.store.transfer import export_user, import_user

from .samples import ANN, BEN, add_memory, new_message, new_trace

ASKED = datetime(2026, 1, 2, 3, tzinfo=UTC)


@pytest.fixture
async def recalls(store: Store) -> Store:
    """A store in which both users have a message, a memory and two recalls."""
    for scope in (ANN, BEN):
        await store.timeline(scope).add([new_message("m1"), new_message("m2")])
        await add_memory(store, f"k-{scope.user_id}", scope=scope)
        for name in ("t1", "t2"):
            body = {"now": "2026-01-02T03:00:00Z"}
            await store.traces(scope).add(new_trace(name, "我喝什么茶？", body=body), 30)
    return store


async def get(store: Store, user: str = "ann", trace: str = "t1") -> Feedback | None:
    return (await store.feedback_list.get_many([(user, trace)])).get((user, trace))


async def test_feedback_is_stored_changed_and_removed(recalls: Store) -> None:
    writer = recalls.feedback(ANN)
    await writer.set("t1", is_right=True, evidence=["m1", "k-ann", "m1"], actor="key 1")
    first = await get(recalls)
    assert first is not None
    assert (first.query, first.asked_at, first.agent_id) == ("我喝什么茶？", ASKED, "default")
    assert (first.is_right, first.evidence, first.actor) == (True, ("m1", "k-ann"), "key 1")
    assert await recalls.feedback_list.labelled() == []
    await writer.set("t1", is_right=False, evidence=[], in_evaluation=True)
    (label,) = await recalls.feedback_list.labelled()
    assert (label.is_right, label.evidence, label.trace_id) == (False, (), "t1")
    await writer.remove("t1")
    await writer.remove("t1")
    assert await get(recalls) is None


async def test_impossible_feedback_is_refused(recalls: Store) -> None:
    attempts: list[tuple[Scope, str, list[str], type[Exception]]] = [
        (ANN, "t9", [], NotFound),
        (Scope("nobody"), "t1", [], NotFound),
        (Scope("ann", "other"), "t1", [], NotFound),
        (ANN, "t1", ["k-ben"], InvalidArgument),
        (ANN, "t1", [f"k{number}" for number in range(101)], InvalidArgument),
    ]
    for scope, trace, evidence, error in attempts:
        with pytest.raises(error):
            await recalls.feedback(scope).set(trace, is_right=True, evidence=evidence)
    await recalls.changes(ANN).delete(["k-ann"], actor="test")
    with pytest.raises(InvalidArgument, match="k-ann"):
        await recalls.feedback(ANN).set("t1", is_right=True, evidence=["k-ann"])


async def test_labels_are_those_of_the_users_and_the_agent(recalls: Store) -> None:
    for scope in (ANN, BEN):
        await recalls.feedback(scope).set("t2", is_right=True, evidence=["m1"], in_evaluation=True)

    async def users(**options: Any) -> list[str]:
        return [label.user_id for label in await recalls.feedback_list.labelled(**options)]

    assert await users() == ["ben", "ann"]
    assert await users(users=["ann"]) == ["ann"]
    assert await users(users=[]) == []
    assert await users(agent_id="other") == []
    await recalls.feedback(Scope("ann", "other")).remove("t2")
    assert await users(users=["ann"], agent_id="default") == ["ann"]


async def test_feedback_outlives_its_trace(recalls: Store) -> None:
    await recalls.feedback(ANN).set("t1", is_right=True, evidence=["m1"], in_evaluation=True)
    await recalls.owners.purge_traces(datetime.now(UTC))
    assert [label.trace_id for label in await recalls.feedback_list.labelled()] == ["t1"]


async def test_deleted_evidence_hides_feedback_until_undo(recalls: Store) -> None:
    for name, evidence in (("t1", ["k-ann"]), ("t2", ["m2"])):
        await recalls.feedback(ANN).set(name, is_right=True, evidence=evidence, in_evaluation=True)
    await recalls.changes(ANN).delete(["k-ann"], actor="test")
    assert [label.trace_id for label in await recalls.feedback_list.labelled()] == ["t2"]
    assert await get(recalls) is None
    await recalls.changes(ANN).undo("k-ann", actor="test")
    assert await get(recalls) is not None
    await recalls.changes(ANN).purge_message("m2")
    assert [label.trace_id for label in await recalls.feedback_list.labelled()] == ["t1"]


async def test_erasing_a_session_or_user_erases_the_feedback(recalls: Store) -> None:
    for scope in (ANN, BEN):
        await recalls.feedback(scope).set("t1", is_right=True, evidence=[], in_evaluation=True)
    await recalls.owners.erase_session("ann", "default")
    assert [label.user_id for label in await recalls.feedback_list.labelled()] == ["ben"]
    await recalls.owners.erase_user("ben")
    assert await recalls.feedback_list.labelled() == []


async def test_export_has_feedback_and_import_leaves_out_what_was_erased(recalls: Store) -> None:
    asked = "我想把 m1 删掉，地址是长安街一号"
    await recalls.timeline(ANN).add([new_message("m3", asked)])
    await recalls.traces(ANN).add(new_trace("t3", asked), 30)
    for name, evidence in (("t1", ["m1"]), ("t2", ["m2"]), ("t3", [])):
        await recalls.feedback(ANN).set(name, is_right=False, evidence=evidence, in_evaluation=True)
    records = [record async for record in export_user(recalls.database, "ann")]
    assert [r["row"]["trace_id"] for r in records if r["table"] == "feedback"] == ["t1", "t2", "t3"]
    await import_user(recalls.database, "copy", records)
    copies = await recalls.feedback_list.labelled(["copy"])
    assert {label.trace_id: label.evidence for label in copies} == {
        "t1": ("m1",),
        "t2": ("m2",),
        "t3": (),
    }
    for message in ("m1", "m3"):
        await recalls.changes(ANN).purge_message(message)
    await import_user(recalls.database, "ann", records)
    assert [label.trace_id for label in await recalls.feedback_list.labelled(["ann"])] == ["t2"]
    wrong = {"format": 1, "table": "feedback", "row": {**records[-1]["row"], "evidence": "m1"}}
    with pytest.raises(InvalidArgument, match="evidence"):
        await import_user(recalls.database, "copy", [wrong])
