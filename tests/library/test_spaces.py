"""Spaces: members read and write them by their roles, and nobody else does."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from sqlalchemy import insert, select, update

from memrecall.agent.blocks import write_block
from memrecall.errors import (
    Conflict,
    Disabled,
    Forbidden,
    InvalidArgument,
    MemrecallError,
    NotFound,
)
from memrecall.memory import AsyncMemory, Library, Memory
from memrecall.memory.layers import LongTermMemory
from memrecall.memory.results import StoredItem
from memrecall.scope import Permission, Scope, SpaceRole
from memrecall.search import SearchRequest
from memrecall.store import Grant, NewRelation
from memrecall.store.database.tables import memberships, messages
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..cases import check_each_async
from ..counting import recorded_statements
from ..memory.word_extractor import WordExtractor

TEAM = "team-x"
OWNER = f"space:{TEAM}"
MEMBERS = {"ann": "admin", "ben": "contributor", "cleo": "reader"}

Call = Callable[[Any], Awaitable[Any]]


@pytest.fixture
async def memory(library: Library) -> AsyncIterator[AsyncMemory]:
    """A space of three members, each with a role of their own, and a stranger."""
    async with AsyncMemory(library=library, extractor=WordExtractor()) as everything:
        ann = everything.bind(user_id="ann")
        await ann.create_space(TEAM, name="Team X", description="plans")
        for member, role in MEMBERS.items():
            await ann.space(TEAM).set_member(member, role, name=member.title())
        await team(everything, "ann").add("launch: Friday.")
        await team(everything, "ben").add("office: Rome.")
        await everything.add("secret: zephyr.", user_id="dora")
        await library.vectors.settle()
        yield everything


def team(memory: AsyncMemory, user: str) -> Any:
    return memory.bind(user_id=user).space(TEAM)


async def key_by(memory: AsyncMemory, author: str) -> str:
    """Return the key of the memory that a member wrote."""
    page = await team(memory, "ann").get_all()
    return next(str(item["id"]) for item in page["results"] if item["author"] == author)


async def refusal(work: Awaitable[object]) -> MemrecallError | None:
    try:
        await work
    except MemrecallError as error:
        return error
    return None


async def test_a_space_has_members_a_name_and_rows_of_authors(memory: AsyncMemory) -> None:
    ann = memory.bind(user_id="ann")
    (space,) = await ann.spaces()
    assert (space["space_id"], space["name"], space["role"]) == (TEAM, "Team X", "admin")
    assert (await team(memory, "cleo").space_info())["description"] == "plans"
    grants = await team(memory, "cleo").grants()
    assert {grant["member"]: grant["role"] for grant in grants} == MEMBERS
    assert [grant["granted_by"] for grant in grants] == [None, "ann", "ann"]
    items = (await team(memory, "cleo").get_all())["results"]
    assert {(item["author"], item["space"], item["memory"]) for item in items} == {
        ("Ann", TEAM, "Ann's launch is Friday"),
        ("Ben", TEAM, "Ben's office is Rome"),
    }
    assert (await ann.get_all())["results"] == []


READS: list[tuple[str, Call]] = [
    ("get_all", lambda t: t.get_all()),
    ("search", lambda t: t.search("when is the launch")),
    ("recall", lambda t: t.recall("when is the launch?")),
    ("graph", lambda t: t.graph()),
    ("members", lambda t: t.members()),
    ("audit", lambda t: t.audit()),
]
WRITES: list[tuple[str, Call]] = [
    ("add", lambda t: t.add("tea: green.")),
    ("summarize", lambda t: t.summarize(session_id="default")),
]
ADMIN: list[tuple[str, Call]] = [
    ("end_session", lambda t: t.end_session(session_id="default")),
    ("set_member", lambda t: t.set_member("dora", "reader")),
    ("remove_member", lambda t: t.remove_member("ann")),
    ("delete_all", lambda t: t.delete_all()),
    ("export", lambda t: anext(t.export())),
    ("import", lambda t: t.import_([])),
    ("delete_space", lambda t: t.delete_space(name="Team X")),
]
LEAST = {SpaceRole.READER: READS, SpaceRole.CONTRIBUTOR: WRITES, SpaceRole.ADMIN: ADMIN}


@pytest.mark.parametrize("user", [*MEMBERS, "dora", "nobody"])
async def test_each_role_may_do_what_it_may(memory: AsyncMemory, user: str) -> None:
    role = SpaceRole(MEMBERS[user]) if user in MEMBERS else None
    expected: dict[str, type[MemrecallError] | None] = {}
    outcomes: dict[str, Any] = {}
    for least, calls in LEAST.items():
        for name, call in calls:
            is_allowed = role is not None and role.includes(least)
            if is_allowed and least is SpaceRole.ADMIN and name != "export":
                continue  # in tests of their own: they change the space
            refused = NotFound if role is None else Forbidden
            expected[name] = None if is_allowed else refused
            error = await refusal(call(team(memory, user)))
            outcomes[name] = error and type(error)
    assert outcomes == expected


async def test_strangers_cannot_tell_a_space_from_none(memory: AsyncMemory) -> None:
    await team(memory, "ann").remove_member("cleo")
    for _, call in (*READS, *WRITES, *ADMIN):
        errors = {
            str(await refusal(call(memory.bind(user_id=user).space(name))))
            for user, name in (("dora", TEAM), ("dora", "none"), ("cleo", TEAM))
        }
        assert errors == {"there is no such space, or you are not a member of it"}


async def test_no_user_id_reaches_a_space(memory: AsyncMemory, library: Library) -> None:
    async def check(call: Callable[[], Any]) -> None:
        async def run() -> None:
            result = call()
            if hasattr(result, "__await__"):
                await result

        with pytest.raises(InvalidArgument, match="begins with 'space:'"):
            await run()

    calls: list[Callable[[], Any]] = [
        lambda: Scope(OWNER),
        lambda: Scope(OWNER, member="ann"),
        lambda: AsyncMemory(user_id=OWNER),
        lambda: memory.search("launch", user_id=OWNER),
        lambda: memory.add("tea: green.", user_id=OWNER),
        lambda: memory.erase(OWNER),
        lambda: memory.import_([], OWNER),
        lambda: Grant(frozenset({OWNER})),
    ]
    await check_each_async(calls, check, lambda call: str(calls.index(call)))
    key = await key_by(memory, "Ann")
    assert await memory.get(key) is None  # an unbound memory does not find it by its key
    users = [user["user_id"] for user in (await library.store.owners.list_users()).items]
    assert OWNER not in users
    assert await library.store.owners.find_users("space") == []


async def test_contributors_change_their_own_and_admins_anything(
    memory: AsyncMemory, library: Library
) -> None:
    ann, ben = team(memory, "ann"), team(memory, "ben")
    of_ann, of_ben = await key_by(memory, "Ann"), await key_by(memory, "Ben")
    source = (await ben.get(of_ann))["source_message_ids"][0]
    attempts: list[Call] = [
        lambda t: t.update(of_ann, "launch on Monday"),
        lambda t: t.delete(of_ann),
        lambda t: t.purge(of_ann),
        lambda t: t.delete(source),
    ]
    for attempt in attempts:
        assert type(await refusal(attempt(ben))) is Forbidden
    await ben.update(of_ben, "office in Paris")
    await ann.update(of_ben, "office in Oslo")
    assert type(await refusal(ben.undo(of_ann))) in (Conflict, Forbidden)
    inside = await library.store.spaces.enter(Scope("ben"), TEAM)
    await library.changes(inside).delete([of_ben], actor="mcp")
    await ben.undo(of_ben)
    assert {entry["actor"] for entry in await ann.audit()} == {"ann", "ben"}
    assert {entry["actor_id"] for entry in await ann.history(of_ben)} <= {
        "ann",
        "ben",
        "extraction",
    }
    assert (await ben.get(of_ben))["memory"] == "office in Oslo"
    await ann.purge(of_ben, sources=True)
    assert await ben.get(of_ben) is None


async def test_a_role_is_checked_again_in_the_transaction_of_a_write(
    memory: AsyncMemory, library: Library
) -> None:
    store = library.store
    inside = await store.spaces.enter(Scope("ben"), TEAM)
    new = NewMemory(content="late")
    message = NewMessage(content="late", role=Role.USER)
    writes: list[Callable[[], Awaitable[Any]]] = [
        lambda: store.memories(inside).add([new], origin=Origin.USER),
        lambda: store.timeline(inside).add([message]),
        lambda: store.session_state(inside).save({}),
        lambda: store.changes(inside).delete([], actor="ben"),
        lambda: store.graph(inside).add({}, [NewRelation("a", "knows", "b")]),
        lambda: library.import_user(OWNER, [], inside),
    ]
    await team(memory, "ann").set_member("ben", "reader")
    for write in writes:
        assert type(await refusal(write())) is Forbidden
    await team(memory, "ann").remove_member("ben")
    for write in writes:
        assert type(await refusal(write())) is NotFound
    with pytest.raises(NotFound):
        await library.search(inside, SearchRequest("launch"))
    await team(memory, "ann").delete_space(name="Team X")
    for write in writes:  # and does not create the space again
        assert type(await refusal(write())) is NotFound
    assert await store.feed(OWNER).version() is None


async def test_the_last_admin_stays_and_a_deletion_names_the_space(
    memory: AsyncMemory, library: Library
) -> None:
    ann = team(memory, "ann")
    for work in (ann.leave(), ann.set_member("ann", "reader"), ann.remove_member("ann")):
        assert type(await refusal(work)) is Conflict
    assert type(await refusal(ann.delete_space(name=TEAM))) is InvalidArgument
    key, _ = await library.store.keys.create(Grant(frozenset({"dora"})), name="bot")
    await ann.set_member(f"key:{key.key_id}", "admin")
    assert type(await refusal(ann.set_member("key:none", "admin"))) is NotFound
    assert type(await refusal(ann.leave())) is Conflict  # a key may be revoked
    await ann.set_member("ben", "admin")
    await ann.leave()
    assert await memory.bind(user_id="ann").spaces() == []
    await team(memory, "ben").end_session(session_id="default")
    actions = [entry["action"] for entry in await team(memory, "ben").audit()]
    assert actions[:3] == ["end_session", "leave", "role"]
    assert actions.count("join") == 3
    await team(memory, "ben").delete_space(name="Team X")
    assert type(await refusal(team(memory, "ben").get_all())) is NotFound


@pytest.mark.parametrize(
    ("work", "error"),
    [
        (lambda m: m.bind(user_id="dora").create_space(TEAM), Conflict),
        (lambda m: m.bind(user_id="dora").create_space("a/b"), InvalidArgument),
        (lambda m: m.bind(user_id="dora").create_space("a,b"), InvalidArgument),
        (lambda m: m.bind(user_id="dora").create_space("a:b"), InvalidArgument),
        (lambda m: m.bind(user_id="dora").create_space(" "), InvalidArgument),
        (lambda m: m.search("tea", user_id="key:abc"), InvalidArgument),
        (lambda m: m.bind(user_id="dora").create_space("x" * 60), InvalidArgument),
        (lambda m: m.create_space("other"), InvalidArgument),
        (lambda m: team(m, "ann").set_member("eve", "owner"), InvalidArgument),
        (lambda m: team(m, "ann").set_member("*", "reader"), InvalidArgument),
        (lambda m: team(m, "ann").set_member(OWNER, "reader"), InvalidArgument),
        (lambda m: team(m, "ann").remove_member("eve"), NotFound),
        (lambda m: m.bind(user_id="dora").members(), InvalidArgument),
        (lambda m: m.bind(user_id="*").space(TEAM).members(), NotFound),
    ],
)
async def test_bad_input(memory: AsyncMemory, work: Call, error: type[MemrecallError]) -> None:
    assert type(await refusal(work(memory))) is error


def test_a_space_has_no_other_verbs() -> None:
    with Memory(user_id="ann", db="none.db") as memory:
        for name in ("reset", "erase", "bind_all", "short_term", "tools"):
            assert not hasattr(memory.space(TEAM), name)


async def test_one_search_covers_own_data_and_spaces(memory: AsyncMemory) -> None:
    ann = memory.bind(user_id="ann")
    await ann.add("launch: Sunday. hobby: chess.")
    both = ann.bind(spaces=(TEAM,))
    found = (await both.search("when is the launch?"))["results"]
    by_space = {item.get("space"): item for item in reversed(found) if item["kind"] == "memory"}
    own, shared = by_space[None], by_space[TEAM]
    assert own["memory"] == "user's launch is Sunday"
    assert (shared["memory"], shared["author"]) == ("Ann's launch is Friday", "Ann")
    assert shared["id"].startswith(f"{OWNER}/")
    # Both are shown, and nothing judges which of them holds.
    assert own["conflicts_with"] == shared["conflicts_with"] == []
    assert own["valid_to"] is shared["valid_to"] is None
    chances = [item["probability"] or 0.0 for item in found]
    assert chances == sorted(chances, reverse=True)
    assert not any(item.get("space") for item in (await ann.search("launch"))["results"])


async def test_ids_of_a_space_are_accepted_by_every_verb(memory: AsyncMemory) -> None:
    key = await key_by(memory, "Ben")
    ben = memory.bind(user_id="ben", spaces=(TEAM,))
    name = f"{OWNER}/{key}"
    assert cast(StoredItem, await ben.get(name))["id"] == name
    assert (await ben.update(name, "office in Paris"))["id"] == name
    assert {entry["memory_id"] for entry in await ben.history(name)} == {name}
    assert (await ben.delete(name))["id"] == name
    assert await ben.get(name) is None
    await ben.undo(name)
    cleo = memory.bind(user_id="cleo", spaces=(TEAM,))
    assert type(await refusal(cleo.update(name, "no"))) is Forbidden
    assert await memory.bind(user_id="ben").get(name) is None  # a scope without the space
    assert (await ben.purge(name))["purged"] == 1


async def test_recall_says_where_an_item_is_from(memory: AsyncMemory, library: Library) -> None:
    cleo = memory.bind(user_id="cleo", spaces=(TEAM,))
    result = await cleo.recall("Where is Ben's office?")
    item = next(item for item in result.memories if "Rome" in item.content)
    assert (item.space, item.author) == (TEAM, "Ben")
    assert f"space: {TEAM}, by Ben, {item.ts:%Y-%m-%d}" in write_block(result)
    reasons = await cleo.why_seen(result.trace.trace_id)
    assert {reason["granted_by"] for reason in reasons if reason["space"]} == {"ann"}
    page = await library.store.traces(Scope("cleo")).page()
    assert [trace.query for trace in page.items] == ["Where is Ben's office?"]
    trace = await library.store.traces(Scope("cleo")).get(result.trace.trace_id)
    assert "Rome" not in str(trace.body)  # it would outlive an erasure in the space
    within = await team(memory, "cleo").recall("Where is Ben's office?")
    assert f"{item.ts:%Y-%m-%d}, space: {TEAM}, by Ben: " in within.handoff.search_summary
    page = await library.store.traces(Scope.of_owner(OWNER)).page()
    assert page.items == ()  # what members ask is theirs alone
    await team(memory, "ann").remove_member("cleo")
    reasons = await cleo.why_seen(result.trace.trace_id)
    assert {reason["reason"] for reason in reasons} == {"no longer readable"}
    assert type(await refusal(cleo.recall("Where is Ben's office?"))) is NotFound
    assert type(await refusal(cleo.search("office"))) is NotFound


async def test_a_scope_without_spaces_costs_no_statement(memory: AsyncMemory) -> None:
    dora = memory.bind(user_id="dora")
    await dora.search("secret")
    with recorded_statements() as statements:
        await dora.search("secret")
    assert not any("memberships" in statement for statement in statements)


async def test_members_who_contradict_each_other_are_shown_side_by_side(
    memory: AsyncMemory, library: Library
) -> None:
    ann, ben = team(memory, "ann"), team(memory, "ben")
    say = [{"role": "user", "speaker": "Plan", "content": text} for text in ("day: one.",)]
    (first,) = (await ann.add(say))["results"]
    (second,) = (await ben.add([{**say[0], "content": "day: two."}]))["results"]
    assert (second["event"], second["reason"].split(", ")[1:]) == ("ADD", ["and is kept"])
    assert second["conflicts_with"] == [{"id": first["id"]}]
    (third,) = (await ben.add([{**say[0], "content": "day: three."}]))["results"]
    assert (third["event"], third["previous_id"]) == ("UPDATE", second["id"])
    assert (await ben.add([{**say[0], "content": "forget day"}]))["results"] == []
    item = await ann.get(third["id"])
    assert item["author"] == "Ben"
    (conflict,) = item["conflicts_with"]
    assert (conflict["memory"], conflict["author"]) == ("Plan's day is one", "Ann")
    (own,) = (await ann.add([{**say[0], "content": "day: four."}]))["results"]
    assert own["previous_id"] == first["id"]  # Ann may replace what she said


async def test_no_member_ends_the_relations_of_another(
    memory: AsyncMemory, library: Library
) -> None:
    async def relate(user: str, place: str, ended: bool = False) -> list[str]:
        inside = await library.store.spaces.enter(Scope(user), TEAM)
        message = NewMessage(content=place, role=Role.USER)
        ids = (await library.store.timeline(inside).add([message])).ids
        graph, field = library.graph(inside), "lives_in"
        new = NewRelation("Joyce", field, place, ids, ended=ended, replaces=(field,))
        await graph.add({}, [new])
        return sorted(relation.destination for relation in await graph.latest(9))

    assert await relate("ann", "Lisbon") == ["Lisbon"]
    assert await relate("ben", "Porto") == ["Lisbon", "Porto"]
    assert await relate("ben", "Lisbon", ended=True) == ["Lisbon", "Porto"]
    assert await relate("ben", "Rome") == ["Lisbon", "Rome"]
    assert await relate("ann", "Lisbon", ended=True) == ["Rome"]


async def test_promotion_copies_a_memory_with_its_message(memory: AsyncMemory) -> None:
    ben = memory.bind(user_id="ben")
    (fact,) = (await ben.add("office: Oslo."))["results"]
    unshared = await key_by(memory, "Ben")
    copy = await ben.promote(fact["id"], TEAM)
    assert (copy["is_new"], copy["memory"]) == (True, "Ben's office is Oslo")
    assert not (await ben.promote(fact["id"], TEAM))["is_new"]
    assert (await ben.promote(fact["id"], TEAM))["id"] == copy["id"]
    item = await memory.bind(user_id="cleo", spaces=(TEAM,)).get(copy["id"])
    assert item is not None
    assert (item["author"], item["subject"]) == ("Ben", "Ben")
    assert item["memory"] == "Ben's office is Oslo"
    assert "office: Oslo." in str(await team(memory, "cleo").get_all(kinds="messages"))
    key = copy["id"].partition("/")[2]
    assert type(await refusal(memory.bind(user_id="ann").demote(key, TEAM))) is Forbidden
    assert type(await refusal(ben.demote(unshared, TEAM))) is NotFound
    await ben.demote(fact["id"], TEAM)
    assert await team(memory, "ann").get(key) is None
    assert "office: Oslo." not in str(await team(memory, "ann").get_all(kinds="messages"))
    assert (await ben.promote(fact["id"], TEAM))["is_new"]  # and back again
    assert cast(StoredItem, await ben.get(fact["id"]))["memory"] == "user's office is Oslo"
    cleo = memory.bind(user_id="cleo")
    (own,) = (await cleo.add("pet: cat."))["results"]
    assert type(await refusal(cleo.promote(own["id"], TEAM))) is Forbidden
    actions = [entry["action"] for entry in await team(memory, "ann").audit()]
    assert actions[:2] == ["promote", "demote"]


@pytest.mark.parametrize("by_copy", [False, True])
@pytest.mark.parametrize("is_repeated", [False, True])
async def test_a_purged_copy_can_still_be_taken_back_with_its_message(
    memory: AsyncMemory, by_copy: bool, is_repeated: bool
) -> None:
    ben = memory.bind(user_id="ben")
    (fact,) = (await ben.add("office: Oslo."))["results"]
    copy = await ben.promote(fact["id"], TEAM)
    if is_repeated:
        await ben.demote(fact["id"], TEAM)
        assert await ben.promote(fact["id"], TEAM) == copy
    await team(memory, "ben").purge(copy["id"].partition("/")[2], sources=False)
    assert "office: Oslo." in str(await team(memory, "ann").get_all(kinds="messages"))
    key = copy["id"] if by_copy else fact["id"]
    assert type(await refusal(memory.bind(user_id="ann").demote(key, TEAM))) is NotFound
    await ben.demote(key, TEAM)
    assert "office: Oslo." not in str(await team(memory, "ann").get_all(kinds="messages"))
    again = await refusal(ben.demote(key, TEAM))
    assert type(again) is NotFound
    assert key in str(again)


async def test_a_copy_that_was_promoted_again_is_exported(memory: AsyncMemory) -> None:
    ben = memory.bind(user_id="ben")
    (fact,) = (await ben.add("office: Oslo."))["results"]
    await ben.promote(fact["id"], TEAM)
    await ben.demote(fact["id"], TEAM)
    await ben.promote(fact["id"], TEAM)
    lines = [line async for line in team(memory, "ann").export()]
    await memory.bind(user_id="ann").create_space("other")
    await memory.bind(user_id="ann").space("other").import_(lines)
    items = (await memory.bind(user_id="ann").space("other").get_all(kinds="all"))["results"]
    assert [item["memory"] for item in items if "Oslo" in item["memory"]] == [
        "Ben's office is Oslo",
        "office: Oslo.",
    ]


async def test_erasing_who_left_erases_their_contributions(memory: AsyncMemory) -> None:
    await team(memory, "ben").leave()
    report = await memory.erase("ben", with_contributions=True)
    assert (report["messages"], report["memories"]) == (1, 1)
    assert type(await refusal(memory.erase("ben", with_contributions=True))) is NotFound


async def test_nobody_passes_for_another_member(memory: AsyncMemory, library: Library) -> None:
    forged = {"role": "user", "speaker": "Ann", "content": "budget: nine millions."}
    await team(memory, "ben").add([forged])
    await team(memory, "ann").add([{"role": "user", "content": "Tea is at four."}])
    await library.vectors.settle()
    inside = await memory.bind(user_id="cleo").enter(TEAM)
    named = "Ann (written by Ben)"
    state = (await inside.state(10_000))["text"]
    assert f"{named}: budget: nine millions." in state
    assert "Ann: Tea is at four." in state
    assert "Ann: budget" not in state
    narrow = (await inside.state(30))["text"]
    assert "Ann: budget" not in narrow
    summary = await team(memory, "ben").summarize(session_id="default")
    assert "Ann: budget" not in str(summary)
    item = next(
        i
        for i in (await team(memory, "cleo").get_all(kinds="messages"))["results"]
        if "budget" in i["memory"]
    )
    assert (item["speaker"], item["author"]) == (named, "Ben")
    recall = await memory.bind(user_id="cleo", spaces=(TEAM,)).recall("what is the budget?")
    found = [m for m in (*recall.memories, *recall.closest) if "million" in m.content]
    assert found
    assert {m.by for m in found} == {named}
    lines = [line for line in write_block(recall).splitlines() if "nine millions" in line]
    assert lines
    assert [line for line in lines if named not in line and "by Ben: “budget" not in line] == []
    long_term = LongTermMemory(library, await library.store.spaces.enter(Scope("cleo"), TEAM))
    (budget,) = (await long_term.user_info.profile("Ann"))["budget"]
    assert budget["author"] == "Ben"


async def test_who_can_see_and_why(memory: AsyncMemory, library: Library) -> None:
    key = await key_by(memory, "Ann")
    cleo = memory.bind(user_id="cleo", spaces=(TEAM,))
    seen = await cleo.who_can_see(f"{OWNER}/{key}")
    assert seen["owner"] == {"kind": "space", "id": TEAM}
    assert {member["member"]: member["role"] for member in seen["members"]} == MEMBERS
    (why,) = await cleo.why_seen(f"{OWNER}/{key}")
    assert (why["role"], why["granted_by"], why["author"]) == ("reader", "ann", "Ann")
    (own,) = (await cleo.add("pet: cat."))["results"]
    keys = library.store.keys
    granted, _ = await keys.create(Grant(frozenset({"cleo"})), name="phone")
    bot, _ = await keys.create(Grant(frozenset({"dora"})))
    await keys.create(Grant(frozenset({"cleo"}), agent_id="helper"))
    await library.store.memories(Scope("cleo")).add(
        [NewMemory(content="PIN", sensitive=True, memory_key="pin")], origin=Origin.USER
    )
    trusted = AsyncMemory(library=library, user_id="cleo", permissions=Permission)
    assert (await trusted.who_can_see("pin"))["keys"] == []
    personal = await cleo.who_can_see(own["id"])
    assert personal["owner"] == {"kind": "user", "id": "cleo"}
    assert [key["key_id"] for key in personal["keys"]] == [granted.key_id]
    await team(memory, "ann").set_member(f"key:{bot.key_id}", "reader")
    for members in (len(MEMBERS) + 1, len(MEMBERS)):
        assert len((await team(memory, "ann").who_can_see(key))["members"]) == members
        await keys.revoke(bot.key_id)
    assert type(await refusal(memory.bind(user_id="dora").who_can_see(key))) is NotFound


async def test_a_key_can_be_a_member(memory: AsyncMemory, library: Library) -> None:
    key, _ = await library.store.keys.create(Grant(frozenset({"dora"})), name="bot")
    member = f"key:{key.key_id}"
    await team(memory, "ann").set_member(member, "reader", name="Bot")
    bot = memory.bind(user_id="dora", member=member)
    assert (await bot.space(TEAM).search("launch"))["results"]
    assert type(await refusal(bot.space(TEAM).add("tea: green."))) is Forbidden
    assert (await memory.bind(user_id=member, member=member).spaces())[0]["space_id"] == TEAM


@pytest.mark.parametrize("with_contributions", [False, True])
async def test_erasing_a_member(
    memory: AsyncMemory, library: Library, with_contributions: bool
) -> None:
    keys = [await library.store.keys.create(Grant(frozenset({user}))) for user in ("ann", "dora")]
    own, bot = (f"key:{key.key_id}" for key, _ in keys)
    for member, role in (("cleo", "contributor"), (own, "contributor"), (bot, "admin")):
        await team(memory, "ann").set_member(member, role)
    await memory.bind(user_id="ann", member=own).space(TEAM).add("tea: green.")
    await team(memory, "ann").set_member("ann", "admin", name="Anna")
    report = await memory.erase("ann", with_contributions=with_contributions)
    assert bool(report["messages"] and report["memories"]) is with_contributions
    grants = {grant["member"]: grant["role"] for grant in await team(memory, "ben").grants()}
    # Ben joined first; ann's own key goes with ann.
    assert grants == {"ben": "admin", "cleo": "contributor", bot: "admin"}
    items = (await team(memory, "ben").get_all())["results"]
    messages = (await team(memory, "ben").get_all(kinds="messages"))["results"]
    for name in ("author", "speaker"):
        authors = {item[name] for item in (*items, *messages)} - {"Ben"}
        assert [each[:7] for each in authors] == ([] if with_contributions else ["erased-"])
    rows = (items, messages, await team(memory, "ben").audit(), await team(memory, "ben").grants())
    assert not {"'ann'", own} & set(str(rows).replace(",", " ").split())
    await team(memory, "ben").remove_member(bot)
    for member in ("ben", "cleo"):
        await memory.erase(member)
    assert await library.store.feed(OWNER).version() is None  # the last member is gone


async def test_export_backs_a_space_up(memory: AsyncMemory, library: Library) -> None:
    lines = [line async for line in team(memory, "ann").export()]
    await team(memory, "ann").delete_space(name="Team X")
    ann = memory.bind(user_id="ann")
    await ann.create_space(TEAM)
    await ann.space(TEAM).import_(lines)
    assert {grant["member"] for grant in await ann.space(TEAM).grants()} == set(MEMBERS)
    assert await key_by(memory, "Ben")
    await memory.import_(lines, "dora")  # no membership comes with it
    assert await memory.bind(user_id="dora").spaces() == []


async def test_disabled_spaces_and_agents(memory: AsyncMemory, library: Library) -> None:
    space = memory.bind(user_id="ann", agent_id="helper")
    await space.add("tea: green.")
    owners = library.store.owners
    await owners.set_agent_enabled("helper", False)
    assert type(await refusal(space.space(TEAM).get_all())) is Disabled
    assert await team(memory, "ann").get_all()
    await memory.add("tea: green.", user_id="ben")
    await owners.set_user_enabled("ben", False)
    both = memory.bind(user_id="ben", spaces=(TEAM,))
    for work in (team(memory, "ben").add("tea: black."), both.search("tea"), both.recall("tea?")):
        assert type(await refusal(work)) is Disabled
    await owners.set_user_enabled(OWNER, False)
    assert type(await refusal(team(memory, "ann").get_all())) is Disabled


def test_the_synchronous_memory_has_the_same_calls(tmp_path: Any) -> None:
    with Memory(user_id="ann", db=str(tmp_path / "m.db")) as memory:
        memory.create_space(TEAM, name="Team X")
        space = memory.space(TEAM)
        space.set_member("ben", "reader", name="Ben")
        space.add("The launch is on Friday.", infer=False)
        both = memory.bind(spaces=(TEAM,))
        (item, *_) = both.search("launch")["results"]
        assert item["space"] == TEAM
        assert both.who_can_see(item["id"])["owner"]["id"] == TEAM
        assert len(memory.spaces()) == 1
        assert len(list(space.export())) > 3


def test_scopes_of_spaces() -> None:
    inside = Scope(OWNER, member="ann", role=SpaceRole.READER)
    assert (inside.space, inside.author, inside.personal()) == (TEAM, "ann", Scope("ann"))
    assert Scope.of_owner(OWNER).author is None
    assert replace(inside, member="key:1").personal() is None
    scope = Scope("ann", spaces=(TEAM,))
    assert scope.split_key(f"{OWNER}/a/b") == (TEAM, "a/b")
    assert scope.split_key("space:other/a") == (None, "space:other/a")
    many = tuple(map(str, range(17)))
    for fields in ({"spaces": (TEAM, TEAM)}, {"spaces": many}, {"member": "ben"}):
        with pytest.raises(InvalidArgument):
            Scope("ann", **fields)


async def test_a_broken_grant_stops_nobody(memory: AsyncMemory, library: Library) -> None:
    row = {"user_id": OWNER, "member": "dora", "role": "god", "created_at": datetime.now(UTC)}
    await library.store.database.transact(lambda c: c.execute(insert(memberships), row))
    assert await memory.bind(user_id="dora").spaces() == []
    assert type(await refusal(team(memory, "dora").get_all())) is NotFound
    assert {grant["member"] for grant in await team(memory, "ann").grants()} == set(MEMBERS)
    assert (await memory.erase("dora"))["messages"] == 1
    assert "dora" not in str(await library.store.database.fetch(select(memberships)))


@pytest.mark.parametrize(
    "grant",
    [{"role": "god"}, {"member": "*"}, {"member": "space:x"}, {"name": "Ann\u202ekraM"}],
)
async def test_an_import_checks_grants(memory: AsyncMemory, grant: dict[str, str]) -> None:
    lines = [json.loads(line) async for line in team(memory, "ann").export()]
    row = {"user_id": OWNER, "member": "dora", "role": "reader", "name": "D", "granted_by": "ann"}
    row |= {"created_at": "2026-01-01T00:00:00Z", **grant}
    lines.append({"format": 1, "table": "memberships", "row": row})
    refused = await refusal(team(memory, "ann").import_(map(json.dumps, lines)))
    assert type(refused) is InvalidArgument
    assert {g["member"] for g in await team(memory, "ann").grants()} == set(MEMBERS)


NAMES = ("Ann\u202ekraM", "two\nlines", "Ann\u200b", "\u2066x", "a\tb")


async def test_names_have_only_printable_characters(memory: AsyncMemory) -> None:
    ann = memory.bind(user_id="ann")
    for name in NAMES:
        calls = (
            ann.create_space("other", name=name),
            ann.space(TEAM).set_member("dora", "reader", name=name),
        )
        assert [type(await refusal(call)) for call in calls] == [InvalidArgument] * 2, name
    assert (await ann.space(TEAM).set_member("dora", "reader", name=" 小朵 D. "))[
        "name"
    ] == "小朵 D."


async def test_descriptions_have_only_printable_lines(memory: AsyncMemory) -> None:
    ann = memory.bind(user_id="ann")
    for text in ("plans\u202e", "bell\x07", "tab\there"):
        refused = await refusal(ann.create_space("other", description=text))
        assert type(refused) is InvalidArgument, text
    made = await ann.create_space("other", description="Pläne\n计划\n")
    assert made["description"] == "Pläne\n计划"


async def test_speakers_have_only_printable_characters(
    memory: AsyncMemory, library: Library
) -> None:
    forged = {"role": "user", "speaker": "Ann\u202e\x07", "content": "budget: nine millions."}
    (written,) = (await team(memory, "ben").add([{**forged, "message_id": "f1"}]))["messages"]
    (item,) = [
        i
        for i in (await team(memory, "cleo").get_all(kinds="messages"))["results"]
        if "budget" in i["memory"]
    ]
    assert item["speaker"] == "Ann (written by Ben)"
    stored = update(messages).where(messages.c.message_id == "f1").values(speaker="Ann\u202e")
    await library.store.database.transact(lambda c: c.execute(stored))  # by an earlier version
    shown = await team(memory, "cleo").get("f1")
    assert shown is not None
    assert shown["speaker"] == "Ann (written by Ben)"
    again = await team(memory, "ben").add([{**forged, "message_id": "f1"}])
    assert again["messages"] == [written]


@pytest.mark.parametrize(
    "name", ["Key:1", "KEY:1", "ｋｅｙ：1", "Space:team", "ＳＰＡＣＥ：x", "space：y"]
)
async def test_ids_like_those_of_keys_and_spaces_are_refused(
    memory: AsyncMemory, name: str
) -> None:
    calls = (
        memory.add("hello", user_id=name),
        memory.bind(user_id="ann").create_space(name),
        team(memory, "ann").set_member(name, "reader"),
    )
    assert [type(await refusal(call)) for call in calls] == [InvalidArgument] * 3
