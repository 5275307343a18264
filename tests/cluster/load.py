"""Clients that write and read through the service while nodes of its database fail."""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import httpx

from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.store import MessageFilter
from tests.waiting import wait_until


@dataclass
class UserLoad:
    """The requests of one user, and how they were answered."""

    user_id: str
    acknowledged: list[str] = field(default_factory=list)  # the texts that are stored
    sent: set[str] = field(default_factory=set)
    refusals: list[float] = field(default_factory=list)  # the seconds until each 503
    searches: int = 0
    wrong: list[str] = field(default_factory=list)  # answers that are neither 200 nor 503

    @property
    def refused(self) -> int:
        """The number of requests that got a 503."""
        return len(self.refusals)

    async def run(self, client: httpx.AsyncClient) -> None:
        """Write and search until cancelled.

        Every second message has an id and is sent again after a 503; the others are sent once,
        because nobody can know whether they were stored.
        """
        number = 0
        while True:
            number += 1
            text = f"{self.user_id} says {number}"
            message = {"role": "user", "content": text, "session_id": "s"}
            if number % 2:
                message["message_id"] = f"m{number}"
            self.sent.add(text)
            is_stored = await self._write(client, message)
            while not is_stored and "message_id" in message:
                await asyncio.sleep(0.05)
                is_stored = await self._write(client, message)
            await self._search(client, number)

    async def _write(self, client: httpx.AsyncClient, message: dict[str, str]) -> bool:
        path = f"/v1/users/{self.user_id}/messages"
        response = await client.post(path, json={"messages": [message]})
        if response.status_code == 200:
            self.acknowledged.append(message["content"])
            return True
        self._note_refusal(response)
        return False

    async def _search(self, client: httpx.AsyncClient, number: int) -> None:
        body = {"user_id": self.user_id, "query_text": f"says {number}"}
        response = await client.post("/v1/messages/lexical_search", json=body)
        if response.status_code == 200:
            self.searches += 1
        else:
            self._note_refusal(response)

    def _note_refusal(self, response: httpx.Response) -> None:
        # Who waits for a server until their deadline gets 504.
        if response.status_code == 504 or "retry-after" in response.headers:
            self.refusals.append(response.elapsed.total_seconds())
        else:
            self.wrong.append(f"{response.status_code} {response.text}")


class Load:
    """Writers and readers of several users."""

    def __init__(self, users: Iterable[str]) -> None:
        self.users = {user: UserLoad(user) for user in users}

    @asynccontextmanager
    async def running(self, client: httpx.AsyncClient) -> AsyncIterator[None]:
        """Send requests of all users while the block runs."""
        tasks = [asyncio.create_task(user.run(client)) for user in self.users.values()]
        try:
            yield
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    async def wait_for_progress(self, users: Iterable[str], more: int = 3) -> float:
        """Wait until each of the users had so many more messages stored; return the seconds."""
        begin = time.monotonic()
        goals = {user: len(self.users[user].acknowledged) + more for user in users}
        await wait_until(
            lambda: all(len(self.users[u].acknowledged) >= goal for u, goal in goals.items())
        )
        return time.monotonic() - begin

    async def wait_for_refusals(self, users: Iterable[str]) -> None:
        """Wait until each of the users was refused once more."""
        goals = {user: self.users[user].refused + 1 for user in users}
        await wait_until(lambda: all(self.users[u].refused >= goal for u, goal in goals.items()))

    async def check(self, library: Library, what: str, seconds: float) -> None:
        """Assert that nothing was lost or stored twice, and print the counts."""
        lost, duplicated, stored = 0, 0, 0
        for user in self.users.values():
            assert user.wrong == []
            texts: Counter[str] = Counter()
            cursor = None
            while True:
                timeline = library.store.timeline(Scope(user.user_id))
                page = await timeline.page(MessageFilter(), page_size=200, cursor=cursor)
                texts.update(item.content for item in page.items)
                cursor = page.next_cursor
                if cursor is None:
                    break
            assert texts.keys() <= user.sent
            stored += texts.total()
            lost += len(set(user.acknowledged) - texts.keys())
            duplicated += texts.total() - len(texts)
        acknowledged = sum(len(user.acknowledged) for user in self.users.values())
        refusals = sorted(second for user in self.users.values() for second in user.refusals)
        searches = sum(user.searches for user in self.users.values())
        print(
            f"\n{what}: {acknowledged} acknowledged, {stored} stored, {lost} lost,"
            f" {duplicated} duplicated, {len(refusals)} refused with 503{_describe(refusals)},"
            f" {searches} searches, recovery {seconds:.1f} s"
        )
        assert (lost, duplicated) == (0, 0)


def _describe(seconds: list[float]) -> str:
    """Return the median and the 99th percentile of sorted seconds."""
    if not seconds:
        return ""
    p50, p99 = (seconds[int(share * (len(seconds) - 1))] for share in (0.5, 0.99))
    return f" after {p50:.2f} s (p50) and {p99:.2f} s (p99)"
