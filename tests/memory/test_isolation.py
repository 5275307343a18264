"""Users, agents and sessions stay isolated for any sequence of operations."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from memrecall.errors import MemrecallError
from memrecall.memory import AsyncMemory
from memrecall.memory.results import AddedItems, StoredItem

from ..databases import Databases
from .conftest import make_settings
from .word_extractor import WordExtractor

USERS, AGENTS, SESSIONS = ("ann", "ben"), ("a1", "a2"), ("s1", "s2")
STEP = st.tuples(
    st.sampled_from(
        ["add", "infer", "retract", "search", "list", "update", "delete", "undo", "delete_all",
         "graph", "sweep", "profile", "state", "purge"]
    ),
    st.sampled_from(USERS),
    st.sampled_from(AGENTS),
    st.sampled_from(SESSIONS),
    st.integers(0, 3),
)  # fmt: skip


class IsolationChecker:
    """Runs operations and checks their results; every stored text names its owner."""

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = memory
        self._keys: dict[tuple[str, str], list[str]] = {}

    async def run_step(self, verb: str, user: str, agent: str, session: str, number: int) -> None:
        """Run one operation of a user through an agent in a session."""
        owner_name = f"{user}-{agent}-{session}"
        step = getattr(self, f"_{verb}", None)
        if step is None:
            await self._touch(verb, (user, agent), number)
        else:
            scope: dict[str, Any] = {"user_id": user, "agent_id": agent}
            await step(scope, session, owner_name, number)

    async def _add(self, scope: dict[str, Any], session: str, owner_name: str, number: int) -> None:
        text = f"{owner_name} note {number}"
        result = await self._memory.add(text, **scope, session_id=session, infer=False)
        self._record_keys(scope, result)

    async def _infer(
        self, scope: dict[str, Any], session: str, owner_name: str, number: int
    ) -> None:
        text = f"f{number}: {owner_name}. {owner_name} works_at {owner_name}Inc"
        self._record_keys(scope, await self._memory.add(text, **scope, session_id=session))

    async def _retract(self, scope: dict[str, Any], session: str, _: str, number: int) -> None:
        await self._memory.add(f"forget f{number}", **scope, session_id=session)

    async def _search(
        self, scope: dict[str, Any], session: str, owner_name: str, number: int
    ) -> None:
        page = await self._memory.search(f"note {number}", **scope, kinds="all")
        self._check(scope, page["results"])
        inside = await self._memory.search("note", **scope, session_id=session)
        assert all(item["session_id"] == session for item in inside["results"])

    async def _list(self, scope: dict[str, Any], session: str, *_: object) -> None:
        self._check(scope, (await self._memory.get_all(**scope, superseded=True))["results"])
        inside = await self._memory.get_all(**scope, session_id=session)
        assert all(item["session_id"] == session for item in inside["results"])

    async def _graph(self, scope: dict[str, Any], _: str, owner_name: str, __: int) -> None:
        relations = (await self._memory.graph(f"{owner_name}Inc", **scope, depth=3))["relations"]
        assert all(r["source"].startswith(_owner_prefix(scope)) for r in relations)

    async def _profile(self, scope: dict[str, Any], *_: object) -> None:
        view = await self._memory.long_term(**scope)
        for entries in (await view.user_info.profile()).values():
            assert all(_owner_prefix(scope) in entry["value"] for entry in entries)

    async def _state(self, scope: dict[str, Any], session: str, owner_name: str, _: int) -> None:
        state = await self._memory.state(500, **scope, session_id=session)
        lines = [line for line in state["text"].splitlines() if "note" in line]
        updated = _updated_text(scope["user_id"], scope["agent_id"])  # of the owner's profile
        assert all(owner_name in line or line == updated for line in lines)

    async def _sweep(self, scope: dict[str, Any], _: str, __: str, number: int) -> None:
        await self._memory.sweep(**scope, dry_run=number != 0)

    async def _delete_all(self, scope: dict[str, Any], session: str, _: str, number: int) -> None:
        await self._memory.delete_all(**scope, session_id=session, dry_run=number != 0)

    async def _touch(self, verb: str, owner: tuple[str, str], number: int) -> None:
        """Change an own memory; check that another user's memory cannot be changed."""
        user, agent = owner
        for (other_user, other_agent), keys in self._keys.items():
            if not keys:
                continue
            key = keys[number % len(keys)]
            is_owner = (other_user, other_agent) == owner
            work: dict[str, Any] = {
                "update": lambda key=key: self._memory.update(
                    key, _updated_text(user, agent), user_id=user
                ),
                "delete": lambda key=key: self._memory.delete(key, user_id=user),
                "undo": lambda key=key: self._memory.undo(key, user_id=user),
                "purge": lambda key=key: self._memory.purge(key, user_id=user),
            }
            if other_user == user and not is_owner:
                continue  # agents of one user are not isolated without a binding
            try:
                result = await work[verb]()
                assert is_owner or result.get("purged") == 0, "another user's memory was changed"
            except MemrecallError:
                pass

    def _record_keys(self, scope: dict[str, Any], result: AddedItems) -> None:
        assert result["problems"] == []
        keys = [r["id"] for r in result["results"] if r["event"] in ("ADD", "UPDATE")]
        self._keys.setdefault((scope["user_id"], scope["agent_id"]), []).extend(keys)

    def _check(self, scope: dict[str, Any], items: list[StoredItem]) -> None:
        for item in items:
            assert item["user_id"] == scope["user_id"]
            if "forget" not in item["memory"]:
                assert _owner_prefix(scope) in item["memory"]


def _updated_text(user: str, agent: str) -> str:
    return f"{user}-{agent}-x note"


def _owner_prefix(scope: dict[str, Any]) -> str:
    return f"{scope['user_id']}-{scope['agent_id']}-"


def test_users_and_agents_are_isolated(databases: Databases) -> None:
    @settings(max_examples=8, suppress_health_check=list(HealthCheck))
    @given(st.lists(STEP, min_size=10, max_size=40))
    @example([(verb, "ann", "a1", "s1", 0) for verb in ("infer", "update", "state")])
    def run(steps: list[tuple[str, str, str, str, int]]) -> None:
        asyncio.run(run_steps(databases.fresh(), steps))

    run()


async def run_steps(location: str, steps: list[tuple[str, str, str, str, int]]) -> None:
    async with AsyncMemory(settings=make_settings(location), extractor=WordExtractor()) as memory:
        checker = IsolationChecker(memory)
        for step in steps:
            await checker.run_step(*step)
