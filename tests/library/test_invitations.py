"""Invitations to spaces: they grant nothing until the invited accepts."""

from collections.abc import AsyncIterator, Awaitable
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from memrecall.errors import InvalidArgument, MemrecallError, NotFound
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope, SpaceRole
from memrecall.store import Store
from memrecall.store.backup.database import backup_database, restore_database
from memrecall.store.database.tables import memberships

from ..databases import Databases

TEAM = "team-x"
OWNER = f"space:{TEAM}"
Refusal = tuple[type[Exception] | None, str]


@pytest.fixture
async def memory(library: Library) -> AsyncIterator[AsyncMemory]:
    """A space of ann, to which she has invited ben and cleo."""
    async with AsyncMemory(library=library) as everything:
        ann = everything.bind(user_id="ann")
        await ann.create_space(TEAM, name="Team X")
        await ann.space(TEAM).add("The launch is on Friday.", infer=False)
        await invite(everything, "ben", "contributor")
        await invite(everything, "cleo", "reader")
        await library.vectors.settle()
        yield everything


def team(memory: AsyncMemory, user: str) -> Any:
    return memory.bind(user_id=user).space(TEAM)


async def invite(memory: AsyncMemory, user: str, role: str, by: str = "ann") -> Any:
    return await team(memory, by).set_member(user, role, name=user.title(), invite=True)


async def refusal(work: Awaitable[object]) -> Refusal:
    try:
        await work
    except MemrecallError as error:
        return type(error), str(error)
    return None, ""


async def statuses(memory: AsyncMemory, user: str = "ann") -> dict[str, str]:
    return {each["member"]: each["status"] for each in await team(memory, user).members()}


async def actions(memory: AsyncMemory) -> list[tuple[str, str, str]]:
    log = await team(memory, "ann").audit()
    return [(entry["action"], entry["actor"], entry["target"]) for entry in log]


async def test_the_invited_sees_nothing_of_the_space(memory: AsyncMemory) -> None:
    ben = memory.bind(user_id="ben")
    assert await ben.spaces() == []
    nowhere = await refusal(ben.space("none").members())
    assert nowhere[0] is NotFound
    inside, both = ben.space(TEAM), ben.bind(spaces=[TEAM])
    own = (await ben.add("I like tea.", infer=False))["results"][0]["id"]
    for work in (
        *(inside.members(), inside.audit(), inside.get_all(), inside.search("launch")),
        *(inside.add("tea"), inside.leave(), inside.set_member("ben", "admin")),
        *(both.search("launch"), both.recall("launch?"), ben.promote(own, TEAM)),
    ):
        assert await refusal(work) == nowhere
    assert await statuses(memory) == {"ann": "member", "ben": "invited", "cleo": "invited"}
    key = (await team(memory, "ann").get_all())["results"][0]["id"]
    readers = (await team(memory, "ann").who_can_see(key))["members"]
    assert [member["member"] for member in readers] == ["ann"]


async def test_accepting_makes_a_member_with_the_role_of_the_invitation(
    memory: AsyncMemory,
) -> None:
    ben = memory.bind(user_id="ben")
    (invitation,) = await ben.invitations()
    assert invitation.pop("invited_at")
    named = {"space_id": TEAM, "name": "Team X"}
    assert invitation == {**named, "role": "contributor", "invited_by": "ann"}
    joined = await ben.accept_invitation(TEAM)
    assert (joined["space_id"], joined["role"]) == (TEAM, "contributor")
    assert [space["space_id"] for space in await ben.spaces()] == [TEAM]
    assert await ben.invitations() == []
    await team(memory, "ben").add("The office is in Rome.", infer=False)
    # Who is no admin does not see who else is invited.
    assert await statuses(memory, "ben") == {"ann": "member", "ben": "member"}
    (grant,) = [m for m in await team(memory, "ann").grants() if m["member"] == "ben"]
    assert (grant["name"], grant["granted_by"]) == ("Ben", "ann")
    assert (await actions(memory))[:2] == [("join", "ben", "ben"), ("invite", "ann", "cleo")]
    # Another role needs no consent.
    assert (await invite(memory, "ben", "admin"))["status"] == "member"
    assert (await team(memory, "ben").space_info())["role"] == "admin"


async def test_declining_and_withdrawing_end_an_invitation(memory: AsyncMemory) -> None:
    ben, cleo = (memory.bind(user_id=user) for user in ("ben", "cleo"))
    await ben.decline_invitation(TEAM)
    await team(memory, "ann").remove_member("cleo")
    log = await actions(memory)
    assert log[:2] == [("withdraw", "ann", "cleo"), ("decline", "ben", "ben")]
    assert await statuses(memory) == {"ann": "member"}
    for user in (ben, cleo):
        assert await user.invitations() == []
        for work in (user.accept_invitation(TEAM), user.decline_invitation(TEAM)):
            assert (await refusal(work))[0] is NotFound
    assert (await refusal(team(memory, "ann").remove_member("ben")))[0] is NotFound


async def test_a_second_invitation_replaces_the_first(memory: AsyncMemory) -> None:
    again = await team(memory, "ann").set_member("ben", "reader", name="Benno", invite=True)
    assert (again["role"], again["status"]) == ("reader", "invited")
    (invitation,) = await memory.bind(user_id="ben").invitations()
    assert invitation["role"] == "reader"
    await memory.bind(user_id="ben").accept_invitation(TEAM)
    assert (await team(memory, "ben").space_info())["role"] == "reader"
    # Trusted code answers for a user, who is a member at once.
    assert (await team(memory, "ann").set_member("cleo", "reader"))["status"] == "member"
    assert await memory.bind(user_id="cleo").invitations() == []


async def test_the_invitation_of_another_is_like_an_unknown_space(
    memory: AsyncMemory, library: Library
) -> None:
    dora, enable = memory.bind(user_id="dora"), library.store.owners.set_user_enabled
    for verb in ("accept_invitation", "decline_invitation"):
        answers = {await refusal(getattr(dora, verb)(name)) for name in (TEAM, "none", "a/b")}
        await enable(OWNER, False)
        answers.add(await refusal(getattr(dora, verb)(TEAM)))
        await enable(OWNER, True)
        ((error, _),) = answers
        assert error is NotFound
    assert await statuses(memory) == {"ann": "member", "ben": "invited", "cleo": "invited"}
    for unbound in (memory, await memory.bind(user_id="ann").enter(TEAM)):
        assert (await refusal(unbound.invitations()))[0] is InvalidArgument


async def test_erasing_users_and_spaces_erases_invitations(
    memory: AsyncMemory, library: Library
) -> None:
    async def rows() -> set[tuple[str, str]]:
        stored = await library.store.database.fetch(select(memberships))
        return {(row.user_id, row.member) for row in stored}

    await memory.erase("ben")  # who has nothing but the invitation
    assert await statuses(memory) == {"ann": "member", "cleo": "invited"}
    assert "ben" not in {entry["target"] for entry in await team(memory, "ann").audit()}
    await team(memory, "ann").set_member("eve", "admin")
    await invite(memory, "dora", "reader", by="eve")
    await team(memory, "eve").leave()
    await memory.erase("eve")  # who is no member any more
    assert await statuses(memory) == {"ann": "member", "cleo": "invited"}
    assert await memory.bind(user_id="dora").invitations() == []
    # Nobody who is only invited inherits a space.
    finn = memory.bind(user_id="finn")
    await finn.create_space("other")
    await finn.space("other").set_member("cleo", "admin", invite=True)
    await memory.erase("finn")
    assert await rows() == {(OWNER, "ann"), (OWNER, "cleo")}
    await team(memory, "ann").delete_space(name="Team X")
    assert await rows() == set()
    assert await memory.bind(user_id="cleo").invitations() == []


async def test_the_last_admin_stays_while_another_is_only_invited(memory: AsyncMemory) -> None:
    await invite(memory, "ben", "admin")
    for work in (team(memory, "ann").leave(), team(memory, "ann").set_member("ann", "reader")):
        assert "the last admin" in (await refusal(work))[1]


async def test_an_invitation_does_not_name_an_author_who_left(memory: AsyncMemory) -> None:
    await memory.bind(user_id="ben").accept_invitation(TEAM)
    await team(memory, "ben").add("The office is in Rome.", infer=False)
    await team(memory, "ben").leave()
    await team(memory, "ann").set_member("ben", "reader", name="Benito", invite=True)
    authors = {item["author"] for item in (await team(memory, "ann").get_all())["results"]}
    assert authors == {"ann", "ben"}


async def test_exports_carry_no_invitations(memory: AsyncMemory) -> None:
    await memory.add("I like tea.", user_id="cleo", infer=False)
    counts = []
    for export in (team(memory, "ann").export(), memory.export("cleo")):
        lines = [line async for line in export]
        assert "invited" not in "".join(lines)
        counts.append(sum('"memberships"' in line for line in lines))
    assert counts == [1, 0]


@pytest.mark.parametrize("is_invited", [False, True])
async def test_importing_a_space_invites_or_adds_its_members(
    memory: AsyncMemory, library: Library, is_invited: bool
) -> None:
    await memory.bind(user_id="ben").accept_invitation(TEAM)
    lines = [line async for line in team(memory, "ann").export()]
    await team(memory, "ann").delete_space(name="Team X")
    await memory.bind(user_id="ann").create_space(TEAM)
    for _ in range(2):
        counts = await team(memory, "ann").import_(lines, invite=is_invited)
        assert counts["memberships"] == 2
    status = "invited" if is_invited else "member"
    assert await statuses(memory) == {"ann": "member", "ben": status}
    if is_invited:
        (invitation,) = await memory.bind(user_id="ben").invitations()
        assert (invitation["invited_by"], invitation["role"]) == ("ann", "contributor")
        await memory.bind(user_id="ben").accept_invitation(TEAM)
    scope = await library.store.spaces.enter(Scope("ben"), TEAM)
    assert scope.role is SpaceRole.CONTRIBUTOR


async def test_a_backup_keeps_invitations(
    memory: AsyncMemory, library: Library, databases: Databases, tmp_path: Path
) -> None:
    file = tmp_path / "backup.db"
    await backup_database(library.store, file, lambda _: None)
    async with await Store.open(databases.fresh()) as copy:
        await restore_database(copy, file, lambda _: None)
        (invitation,) = await copy.spaces.invitations_of("ben")
        assert (invitation.space_id, invitation.role) == (TEAM, SpaceRole.CONTRIBUTOR)
        await copy.spaces.accept("ben", TEAM)
        assert [space.space_id for space in await copy.spaces.list_of("ben")] == [TEAM]
