"""No read or write of a space that a small model of members and roles forbids.

The model knows who is a member of which space with which role, and who wrote what. Each text names
the owner and the author, so that whoever reads it can tell whether they may.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from memrecall.errors import Conflict, Forbidden, MemrecallError, NotFound
from memrecall.memory import AsyncMemory
from memrecall.scope import Scope, SpaceRole
from memrecall.settings import Settings

from ..databases import Databases
from ..machines import LONG, AsyncMachine, run_machine
from ..memory.word_extractor import WordExtractor

USERS = st.sampled_from(["ann", "ben", "cleo", "dora"])
SPACES = st.sampled_from(["red", "blue"])
ROLES = st.sampled_from(list(SpaceRole))
PLACES = st.integers(0, 5)  # which of the rows there are


@dataclass
class ModelSpace:
    """A space in the model: its members in the order in which they joined, and its rows."""

    members: dict[str, SpaceRole]
    rows: dict[str, tuple[str, str]] = field(default_factory=dict)  # author and text by key
    invited: dict[str, tuple[SpaceRole, str]] = field(default_factory=dict)  # role and by whom

    def refusal(self, user: str, least: SpaceRole) -> type[MemrecallError] | None:
        """Return the error of a call that needs a role."""
        role = self.members.get(user)
        if role is None:
            return NotFound
        return None if role.includes(least) else Forbidden

    def is_last_admin(self, user: str) -> bool:
        """Return True if nobody else is an admin."""
        admins = [name for name, role in self.members.items() if role is SpaceRole.ADMIN]
        return admins == [user]

    def lose(self, user: str) -> None:
        """Remove an erased user; the first of the highest role becomes the admin."""
        self.members.pop(user, None)
        self.invited = {n: i for n, i in self.invited.items() if user not in (n, i[1])}
        if self.members and SpaceRole.ADMIN not in self.members.values():
            roles = list(SpaceRole)
            heir = max(self.members, key=lambda name: roles.index(self.members[name]))
            self.members[heir] = SpaceRole.ADMIN


NOBODY = ModelSpace({})


class SharedSpaces(AsyncMachine):
    """Four users and two spaces of one database."""

    def __init__(self, location: str) -> None:
        super().__init__()
        config = Settings(db=location, embedder="hash", snapshots=False, durability="normal")
        self._memory = AsyncMemory(settings=config, extractor=WordExtractor())
        self._spaces: dict[str, ModelSpace] = {}
        self._own: dict[str, dict[str, str]] = {}
        self._number = 0

    def _user(self, user: str) -> AsyncMemory:
        return self._memory.bind(user_id=user)

    def _text(self, owner: str, author: str) -> str:
        self._number += 1
        return f"{author} wrote number {self._number} to {owner}"

    def _row(self, space: ModelSpace, place: int) -> tuple[str, str]:
        """Return the key and the author of one of the rows; of none, a key that is unknown."""
        keys = sorted(space.rows)
        return (
            (keys[place % len(keys)], space.rows[keys[place % len(keys)]][0]) if keys else ("", "")
        )

    @rule(user=USERS, name=SPACES)
    def create(self, user: str, name: str) -> None:
        is_taken = name in self._spaces
        self._attempt(self._user(user).create_space(name), Conflict if is_taken else None)
        self._spaces.setdefault(name, ModelSpace({user: SpaceRole.ADMIN}))

    @rule(user=USERS, name=SPACES, member=USERS, role=ROLES)
    def set_member(self, user: str, name: str, member: str, role: SpaceRole) -> None:
        space = self._spaces.get(name, NOBODY)
        expected = space.refusal(user, SpaceRole.ADMIN)
        if expected is None and role is not SpaceRole.ADMIN and space.is_last_admin(member):
            expected = Conflict
        self._attempt(self._user(user).space(name).set_member(member, role), expected)
        if expected is None:
            space.members[member] = role
            space.invited.pop(member, None)

    @rule(user=USERS, name=SPACES, member=USERS, role=ROLES)
    def invite(self, user: str, name: str, member: str, role: SpaceRole) -> None:
        space = self._spaces.get(name, NOBODY)
        expected = space.refusal(user, SpaceRole.ADMIN)
        if expected is None and role is not SpaceRole.ADMIN and space.is_last_admin(member):
            expected = Conflict
        team = self._user(user).space(name)
        self._attempt(team.set_member(member, role, invite=True), expected)
        if expected is None and member in space.members:
            space.members[member] = role
        elif expected is None:
            space.invited[member] = role, user

    @rule(user=USERS, name=SPACES, accepts=st.booleans())
    def answer(self, user: str, name: str, accepts: bool) -> None:
        space, own = self._spaces.get(name, NOBODY), self._user(user)
        role, _ = space.invited.pop(user, (None, ""))
        work = own.accept_invitation(name) if accepts else own.decline_invitation(name)
        self._attempt(work, None if role else NotFound)
        if role and accepts:
            space.members[user] = role

    @rule(user=USERS, name=SPACES, member=USERS)
    def remove_member(self, user: str, name: str, member: str) -> None:
        space = self._spaces.get(name, NOBODY)
        least = SpaceRole.READER if user == member else SpaceRole.ADMIN
        expected = space.refusal(user, least)
        if expected is None and member in space.invited:
            del space.invited[member]
            self._attempt(self._user(user).space(name).remove_member(member), None)
            return
        if expected is None and member not in space.members:
            expected = NotFound
        elif expected is None and space.is_last_admin(member):
            expected = Conflict
        self._attempt(self._user(user).space(name).remove_member(member), expected)
        if expected is None:
            del space.members[member]

    @rule(user=USERS)
    def write_own(self, user: str) -> None:
        text = self._text(user, user)
        result = self._attempt(self._user(user).add(text, infer=False), None)
        self._own.setdefault(user, {})[result["results"][0]["id"]] = text

    @rule(user=USERS, name=SPACES)
    def write(self, user: str, name: str) -> None:
        space = self._spaces.get(name, NOBODY)
        expected = space.refusal(user, SpaceRole.CONTRIBUTOR)
        text = self._text(name, user)
        result = self._attempt(self._user(user).space(name).add(text, infer=False), expected)
        if result is not None:
            space.rows[result["results"][0]["id"]] = (user, text)

    @rule(user=USERS, name=SPACES, place=PLACES, purge=st.booleans())
    def change(self, user: str, name: str, place: int, purge: bool) -> None:
        space = self._spaces.get(name, NOBODY)
        key, author = self._row(space, place)
        if not key:
            return
        expected = space.refusal(user, SpaceRole.CONTRIBUTOR)
        if expected is None and author != user and space.members[user] is not SpaceRole.ADMIN:
            expected = Forbidden
        team, text = self._user(user).space(name), self._text(name, author)
        self._attempt(team.purge(key) if purge else team.update(key, text), expected)
        if expected is None and purge:
            del space.rows[key]
        elif expected is None:
            space.rows[key] = (author, text)

    @rule(user=USERS, name=SPACES, place=PLACES)
    def promote(self, user: str, name: str, place: int) -> None:
        own, space = self._own.get(user, {}), self._spaces.get(name, NOBODY)
        if not own:
            return
        key = sorted(own)[place % len(own)]
        expected = space.refusal(user, SpaceRole.CONTRIBUTOR)
        result = self._attempt(self._user(user).promote(key, name), expected)
        if result is not None and result["is_new"]:
            space.rows[result["id"].partition("/")[2]] = (user, own[key])

    @rule(user=USERS, name=SPACES, place=PLACES)
    def demote(self, user: str, name: str, place: int) -> None:
        space = self._spaces.get(name, NOBODY)
        key, author = self._row(space, place)
        if not key:
            return
        expected = space.refusal(
            user, SpaceRole.CONTRIBUTOR if author == user else SpaceRole.READER
        )
        if not key.startswith("pro_"):
            expected = NotFound  # it is no copy
        elif expected is None and author != user:
            expected = Forbidden
        self._attempt(self._user(user).demote(key, name), expected)
        if expected is None:
            del space.rows[key]

    @rule(user=USERS, with_contributions=st.booleans())
    def erase(self, user: str, with_contributions: bool) -> None:
        named = [{*s.members, *s.invited} for s in self._spaces.values()]
        if user not in self._own and all(user not in names for names in named):
            return
        self._attempt(self._user(user).erase(with_contributions=with_contributions), None)
        self._own.pop(user, None)
        for name, space in list(self._spaces.items()):
            written = [key for key, (author, _) in space.rows.items() if author == user]
            for key in written:
                text = space.rows.pop(key)[1]
                if not with_contributions:
                    space.rows[key] = ("erased", text)
            space.lose(user)
            if not space.members:
                del self._spaces[name]

    @rule(user=USERS, name=SPACES)
    def delete(self, user: str, name: str) -> None:
        space = self._spaces.get(name, NOBODY)
        expected = space.refusal(user, SpaceRole.ADMIN)
        self._attempt(self._user(user).space(name).delete_space(name=name), expected)
        if expected is None:
            del self._spaces[name]

    @rule(user=USERS, name=SPACES)
    def read(self, user: str, name: str) -> None:
        space = self._spaces.get(name, NOBODY)
        expected = space.refusal(user, SpaceRole.READER)
        page = self._attempt(self._user(user).space(name).get_all(limit=1_000), expected)
        if page is not None:
            texts = {item["id"]: item["memory"] for item in page["results"]}
            assert texts == {key: text for key, (_, text) in space.rows.items()}

    @rule(user=USERS, names=st.sets(SPACES))
    def search(self, user: str, names: set[str]) -> None:
        spaces = [self._spaces.get(name, NOBODY) for name in sorted(names)]
        expected = NotFound if any(user not in space.members for space in spaces) else None
        both = self._user(user).bind(spaces=sorted(names))
        page = self._attempt(both.search("who wrote a number", kinds="memory"), expected)
        if page is None:
            return
        allowed = set(self._own.get(user, {}).values())
        allowed |= {text for space in spaces for _, text in space.rows.values()}
        assert {item["memory"] for item in page["results"]} <= allowed
        for name, space in zip(sorted(names), spaces, strict=True):
            for key in list(space.rows)[:1]:
                item = self._run(both.get(f"space:{name}/{key}"))
                assert item is not None
                assert item["memory"] == space.rows[key][1]

    @invariant()
    def grants_are_those_of_the_model(self) -> None:
        for name, space in self._spaces.items():
            scope = Scope.of_owner(f"space:{name}")
            store = self._run(self._memory._open()).library.store
            members = self._run(store.spaces.members(scope))
            assert {m.member: m.role for m in members} == space.members
            invited = self._run(store.spaces.invited(scope))
            assert {m.member: (m.role, m.granted_by) for m in invited} == space.invited

    async def _close(self) -> None:
        await self._memory.close()


@LONG
def test_nothing_is_read_or_written_that_the_model_forbids(
    databases: Databases, is_long: bool
) -> None:
    examples, steps = (200, 80) if is_long else (12, 40)
    counts = run_machine(lambda: SharedSpaces(databases.fresh()), examples, steps)
    print(f"spaces: {counts.total()} operations, {dict(counts)}")
    assert min(counts["allowed"], counts["refused"]) > (1_000 if is_long else 50)
