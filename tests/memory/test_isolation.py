"""Whatever is done in any order, two users, two agents and two sessions never mix."""

import asyncio
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.errors import MemrecallError
from memrecall.memory import AsyncMemory

from ..databases import Databases
from .conftest import settings_for
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


class Watcher:
    """Does one step after another; every text that is stored names its owner."""

    def __init__(self, memory: AsyncMemory) -> None:
        self._memory = memory
        self._keys: dict[tuple[str, str], list[str]] = {}

    async def do(self, verb: str, user: str, agent: str, session: str, number: int) -> None:
        """One step of a user through an agent in a session."""
        mark = f"{user}-{agent}-{session}"
        step = getattr(self, f"_{verb}", None)
        if step is None:
            await self._touch(verb, (user, agent), number)
        else:
            scope: dict[str, Any] = {"user_id": user, "agent_id": agent}
            await step(scope, session, mark, number)

    async def _add(self, scope: dict[str, Any], session: str, mark: str, number: int) -> None:
        text = f"{mark} note {number}"
        added = await self._memory.add(text, **scope, session_id=session, infer=False)
        self._keep(scope, added)

    async def _infer(self, scope: dict[str, Any], session: str, mark: str, number: int) -> None:
        text = f"f{number}: {mark}. {mark} works_at {mark}Inc"
        self._keep(scope, await self._memory.add(text, **scope, session_id=session))

    async def _retract(self, scope: dict[str, Any], session: str, _: str, number: int) -> None:
        await self._memory.add(f"forget f{number}", **scope, session_id=session)

    async def _search(self, scope: dict[str, Any], session: str, mark: str, number: int) -> None:
        found = await self._memory.search(f"note {number}", **scope, kinds="all")
        self._check(scope, found["results"])
        inside = await self._memory.search("note", **scope, session_id=session)
        assert all(item["session_id"] == session for item in inside["results"])

    async def _list(self, scope: dict[str, Any], session: str, *_: object) -> None:
        self._check(scope, (await self._memory.get_all(**scope, superseded=True))["results"])
        inside = await self._memory.get_all(**scope, session_id=session)
        assert all(item["session_id"] == session for item in inside["results"])

    async def _graph(self, scope: dict[str, Any], _: str, mark: str, __: int) -> None:
        told = (await self._memory.graph(f"{mark}Inc", **scope, depth=3))["relations"]
        assert all(r["source"].startswith(_owner_of(scope)) for r in told)

    async def _profile(self, scope: dict[str, Any], *_: object) -> None:
        view = await self._memory.long_term(**scope)
        for entries in (await view.user_info.profile()).values():
            assert all(_owner_of(scope) in entry["value"] for entry in entries)

    async def _state(self, scope: dict[str, Any], session: str, mark: str, _: int) -> None:
        state = await self._memory.state(500, **scope, session_id=session)
        lines = [line for line in state["text"].splitlines() if "note" in line]
        assert all(mark in line for line in lines)

    async def _sweep(self, scope: dict[str, Any], _: str, __: str, number: int) -> None:
        await self._memory.sweep(**scope, dry_run=number != 0)

    async def _delete_all(self, scope: dict[str, Any], session: str, _: str, number: int) -> None:
        await self._memory.delete_all(**scope, session_id=session, dry_run=number != 0)

    async def _touch(self, verb: str, owner: tuple[str, str], number: int) -> None:
        """Change something of one's own; with another's id it must fail."""
        user, agent = owner
        for (other_user, other_agent), keys in self._keys.items():
            if not keys:
                continue
            key = keys[number % len(keys)]
            mine = (other_user, other_agent) == owner
            work: dict[str, Any] = {
                "update": lambda key=key: self._memory.update(
                    key, f"{user}-{agent}-x note", user_id=user
                ),
                "delete": lambda key=key: self._memory.delete(key, user_id=user),
                "undo": lambda key=key: self._memory.undo(key, user_id=user),
                "purge": lambda key=key: self._memory.purge(key, user_id=user),
            }
            if other_user == user and not mine:
                continue  # a user's own, through another agent: not bound here
            try:
                done = await work[verb]()
                assert mine or done.get("purged") == 0, "another user's memory was changed"
            except MemrecallError:
                pass

    def _keep(self, scope: dict[str, Any], added: dict[str, Any]) -> None:
        assert added["problems"] == []
        keys = [r["id"] for r in added["results"] if r["event"] in ("ADD", "UPDATE")]
        self._keys.setdefault((scope["user_id"], scope["agent_id"]), []).extend(keys)

    def _check(self, scope: dict[str, Any], items: list[dict[str, Any]]) -> None:
        for item in items:
            assert item["user_id"] == scope["user_id"]
            if "forget" not in item["memory"]:
                assert _owner_of(scope) in item["memory"]


def _owner_of(scope: dict[str, Any]) -> str:
    return f"{scope['user_id']}-{scope['agent_id']}-"


def test_users_and_agents_are_isolated(databases: Databases) -> None:
    @settings(max_examples=8, suppress_health_check=list(HealthCheck))
    @given(st.lists(STEP, min_size=10, max_size=40))
    def run(steps: list[tuple[str, str, str, str, int]]) -> None:
        asyncio.run(walk(databases.fresh(), steps))

    run()


async def walk(location: str, steps: list[tuple[str, str, str, str, int]]) -> None:
    async with AsyncMemory(settings=settings_for(location), extractor=WordExtractor()) as memory:
        watcher = Watcher(memory)
        for step in steps:
            await watcher.do(*step)
