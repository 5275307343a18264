"""The load of the soak test, and what its responses must agree with."""

import asyncio
import itertools
import json
import random
import re
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from benchmarks.calls import http_request
from benchmarks.load import FAILURES, Connection, Response

LARGE_USER = "large"
PATIENCE = 60.0  # seconds for one response
_MARK = re.compile(r"\bmk\d+x\b")
_THINGS = ("green tea", "a bicycle", "jazz records", "拿铁咖啡", "旧书", "sourdough", "山里的房子")
# Seconds after the end of a fault in which its failures still arrive.
GRACE = 15.0
_LOADINGS = 10
_WITH_VECTORS = frozenset({"semantic search", "memory search", "recall"})


@dataclass(slots=True)
class Ledger:
    """What was acknowledged, what may be stored, and what went wrong."""

    acknowledged: dict[str, str] = field(default_factory=dict)  # users by mark
    unknown: dict[str, str] = field(default_factory=dict)  # sent without a response
    by_user: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    actions: Counter[str] = field(default_factory=Counter)
    statuses: Counter[str] = field(default_factory=Counter)
    violations: list[str] = field(default_factory=list)

    def acknowledge(self, user: str, marks: Iterable[str]) -> None:
        """Note that the service has stored these marks."""
        for mark in marks:
            self.acknowledged[mark] = user
            self.unknown.pop(mark, None)
            self.by_user[user].append(mark)

    def violate(self, text: str) -> None:
        """Note a broken promise."""
        self.violations.append(text)

    def compare(self, user: str, contents: Iterable[str]) -> None:
        """Compare all messages that a user has with what was acknowledged."""
        stored = Counter(mark for content in contents for mark in _MARK.findall(content))
        for mark in self.by_user.get(user, ()):
            if not stored[mark]:
                self.violate(f"lost: {mark} of {user} was acknowledged and is not stored")
        for mark, count in stored.items():
            owner = self.acknowledged.get(mark) or self.unknown.get(mark)
            if count > 1:
                self.violate(f"duplicated: {mark} of {user} is stored {count} times")
            if owner != user:
                self.violate(f"foreign: {mark} of {owner} is stored for {user}")

    def users(self) -> set[str]:
        """Return the users to whom something was sent."""
        return {*self.acknowledged.values(), *self.unknown.values()}


@dataclass(slots=True)
class Faults:
    """The faults that explain failures: when they are, or were a moment ago."""

    embedder: Callable[[float], bool]
    restarts: list[tuple[float, float]] = field(default_factory=list)  # begin and end

    def explain(self, action: str, response: Response) -> bool:
        """Return True if a 5xx is what the service promises during a fault."""
        now = time.monotonic()
        in_restart = any(begin <= now <= end + GRACE for begin, end in self.restarts)
        if response.status != 503:  # Who waits for the server until their deadline gets 504.
            return in_restart and response.status == 504
        if action in _WITH_VECTORS and self.embedder(GRACE):
            return True
        return in_restart and bool(response.header("retry-after"))


class SoakClient:
    """A client with one connection that sends random requests of random users."""

    _marks = itertools.count()

    def __init__(
        self, url: str, key: str, users: int, ledger: Ledger, faults: Faults, seed: int
    ) -> None:
        self._url, self._key = url, key
        self._users = users
        self._ledger = ledger
        self._faults = faults
        self._chance = random.Random(seed)
        self._connection: Connection | None = None

    async def run(self, end: float) -> None:
        """Send requests until the time has come."""
        actions = {
            self._post: 40,
            self._search_own: 25,
            self._search_by_meaning: 10,
            self._read: 10,
            self._add_memory: 5,
            self._search_memories: 5,
            self._recall: 5,
        }
        while time.monotonic() < end:
            (action,) = self._chance.choices(list(actions), list(actions.values()))
            await action()
        if self._connection is not None:
            await self._connection.close()

    async def _send(self, action: str, method: str, path: str, body: Any = None) -> Response | None:
        """Return the response; None if there was none, which nothing explains."""
        self._ledger.actions[action] += 1
        request = http_request(method, path, self._key, body)
        try:
            async with asyncio.timeout(PATIENCE):
                self._connection = self._connection or await Connection.open(self._url)
                response = await self._connection.exchange(request)
        except FAILURES as error:
            self._connection = None
            self._ledger.statuses[type(error).__name__] += 1
            self._ledger.violate(f"unanswered: {action}: {type(error).__name__}: {error}")
            return None
        self._ledger.statuses[str(response.status)] += 1
        is_explained = response.status < 500 or self._faults.explain(action, response)
        if not is_explained or response.status in (400, 401, 403, 413, 415):
            text = response.body[:200].decode("utf-8", "replace")
            now = f"{time.strftime('%H:%M:%S')} {action}"
            self._ledger.violate(f"unexplained {response.status}: {now}: {text}")
        if response.status in (429, 503):
            await asyncio.sleep(float(response.header("retry-after") or 1))
        return response

    def _user(self) -> str:
        is_large = self._chance.random() < 0.05
        return LARGE_USER if is_large else f"user-{self._chance.randrange(self._users)}"

    def _content(self) -> tuple[str, str]:
        """Return a new mark and a text that contains it."""
        mark = f"mk{next(self._marks)}x"
        thing = self._chance.choice(_THINGS)
        return mark, f"{mark}: on day {self._chance.randrange(365)} I bought {thing}."

    async def _post(self) -> None:
        user = self._user()
        texts = dict(self._content() for _ in range(self._chance.choice((1, 1, 1, 3))))
        with_ids = self._chance.random() < 0.5
        messages = [
            {"role": "user", "content": text, **({"message_id": mark} if with_ids else {})}
            for mark, text in texts.items()
        ]
        self._ledger.unknown.update(dict.fromkeys(texts, user))
        path = f"/v1/users/{user}/messages"
        # With ids a request can be repeated until it is acknowledged, and is stored once.
        for _ in range(5 if with_ids else 1):
            response = await self._send("post", "POST", path, {"messages": messages})
            if response is not None and response.status == 200:
                self._ledger.acknowledge(user, texts)
                if with_ids and self._chance.random() < 0.1:
                    await self._send("post again", "POST", path, {"messages": messages})
                return

    async def _search_own(self) -> None:
        """Search for an acknowledged message, which must be found once."""
        user = self._user()
        if not self._ledger.by_user.get(user):
            return
        mark = self._chance.choice(self._ledger.by_user[user][-200:])
        body = {"user_id": user, "query_text": mark}
        response = await self._send("lexical search", "POST", "/v1/messages/lexical_search", body)
        if response is not None and response.status == 200:
            items = json.loads(response.body)["items"]
            found = sum(mark in _MARK.findall(item["content"]) for item in items)
            if found != 1:
                self._ledger.violate(f"search: {mark} of {user} was found {found} times")

    async def _search_by_meaning(self) -> None:
        body = {"user_id": self._user(), "query_text": self._chance.choice(_THINGS)}
        await self._send("semantic search", "POST", "/v1/messages/semantic_search", body)

    async def _read(self) -> None:
        await self._send("range read", "GET", f"/v1/users/{self._user()}/messages")

    async def _add_memory(self) -> None:
        user = self._user()
        mark, text = self._content()
        self._ledger.unknown[mark] = user
        body = {"user_id": user, "messages": f"{text} My name is {self._chance.choice('ABC')}nn."}
        response = await self._send("memory add", "POST", "/v1/memories", body)
        if response is not None and response.status == 200:
            self._ledger.acknowledge(user, [mark])

    async def _search_memories(self) -> None:
        body = {"user_id": self._user(), "query": self._chance.choice(_THINGS)}
        await self._send("memory search", "POST", "/v1/memories/search", body)

    async def _recall(self) -> None:
        body = {"query": f"What about {self._chance.choice(_THINGS)}, like before?"}
        await self._send("recall", "POST", f"/v1/users/{self._user()}/recall", body)


async def search_once(connection: Connection, key: str, user: str) -> None:
    """Search a user's messages, which loads their index."""
    body = {"user_id": user, "query_text": "tea"}
    request = http_request("POST", "/v1/messages/lexical_search", key, body)
    for _ in range(_LOADINGS):  # A large index is loaded on although the deadline of a read passes.
        if (await connection.exchange(request)).status == 200:
            return
    await connection.ask(request)
