"""The store agrees with a model of plain dicts for any operations of two users.

And nobody is ever shown anything of the other: every text names its owner.
"""

from dataclasses import dataclass, field

from hypothesis import strategies as st
from hypothesis.stateful import invariant, rule

from memrecall.errors import Conflict, Disabled, MemrecallError, NotFound
from memrecall.scope import Scope
from memrecall.store import Store
from memrecall.types import NewMemory, NewMessage, Origin

from ..databases import Databases
from ..machines import LONG, AsyncMachine, run_machine
from .samples import at, new_message, new_trace, read_pages

USERS = st.sampled_from(["ann", "ben"])
SESSIONS = st.sampled_from(["tea", "work"])
NAMES = st.sampled_from(["m1", "m2", "m3", "m4", "m5", "M1", "甲", "😀"])
WORDS = st.sampled_from(["yes", "no"])
BATCHES = st.lists(st.tuples(NAMES, WORDS), min_size=1, max_size=4)
COUNTS = st.integers(0, 3)


@dataclass
class ModelMessage:
    """A message in the model."""

    content: str
    session: str
    minute: int
    sequence_no: int


@dataclass
class ModelUser:
    """A user in the model."""

    enabled: bool = True
    version: int = 0
    ended: dict[str, bool] = field(default_factory=dict)
    counters: dict[str, int] = field(default_factory=dict)
    messages: dict[str, ModelMessage] = field(default_factory=dict)
    memories: dict[str, tuple[str, str]] = field(default_factory=dict)
    traces: dict[str, str] = field(default_factory=dict)

    def open_session(self, session: str) -> None:
        """Add the session if it is new."""
        self.ended.setdefault(session, False)
        self.counters.setdefault(session, 0)

    def timeline(self) -> list[str]:
        """Return the ids from the latest to the earliest."""
        return sorted(self.messages, key=lambda name: (-self.messages[name].minute, name.encode()))

    def reading_order(self) -> list[str]:
        """Return the ids from the earliest to the latest."""
        return sorted(self.messages, key=lambda name: (self.messages[name].minute, name.encode()))

    def refusal(self) -> type[MemrecallError] | None:
        """Return the error of every write, or None."""
        return None if self.enabled else Disabled

    def closed(self, session: str) -> type[MemrecallError] | None:
        """Return the error of a new message in a session, or None."""
        return Disabled if self.ended.get(session, False) else None


def make_content(user: str, word: str) -> str:
    return f"{user} says {word}"


def minute_for(name: str) -> int:
    """Return the minute of a message; some messages share one."""
    return sum(name.encode()) % 3


def to_message(user: str, name: str, word: str) -> NewMessage:
    return new_message(name, make_content(user, word), ts=at(minute_for(name)))


class Conversations(AsyncMachine):
    """Two users of one store."""

    def __init__(self, location: str) -> None:
        super().__init__()
        self._location = location
        self._people: dict[str, ModelUser] = {}
        self._store = self._run(Store.open(location))

    def _person(self, user: str) -> ModelUser:
        """Return the user of the model, stored only if the write succeeds."""
        return self._people.get(user) or ModelUser()

    @rule(user=USERS, session=SESSIONS, batch=BATCHES)
    def write(self, user: str, session: str, batch: list[tuple[str, str]]) -> None:
        person = self._person(user)
        expected = person.refusal() or self._clash(person, user, session, batch)
        messages = [to_message(user, name, word) for name, word in batch]
        timeline = self._store.timeline(Scope(user, session_id=session))
        if not self._succeeds(timeline.add(messages), expected):
            return
        self._people[user] = person
        person.open_session(session)
        for name, word in batch:
            if name not in person.messages:
                person.version += 1
                person.counters[session] += 1
                number = person.counters[session]
                model_message = ModelMessage(
                    make_content(user, word), session, minute_for(name), number
                )
                person.messages[name] = model_message

    def _clash(
        self, person: ModelUser, user: str, session: str, batch: list[tuple[str, str]]
    ) -> type[MemrecallError] | None:
        if any(name in person.memories for name, _ in batch):
            return Conflict
        stored = {name: message.content for name, message in person.messages.items()}
        for name, word in batch:
            if name not in stored and (closed := person.closed(session)):
                return closed
            if stored.setdefault(name, make_content(user, word)) != make_content(user, word):
                return Conflict
        return None

    @rule(user=USERS)
    def repeat_everything(self, user: str) -> None:
        person = self._people.get(user)
        if person is None or not person.messages:
            return
        session = next(iter(person.ended))
        repeated = [
            new_message(name, message.content, ts=None) for name, message in person.messages.items()
        ]
        timeline = self._store.timeline(Scope(user, session_id=session))
        self._attempt(timeline.add(repeated), person.refusal())

    @rule(user=USERS, session=SESSIONS, name=NAMES, word=WORDS)
    def add_memory(self, user: str, session: str, name: str, word: str) -> None:
        person = self._person(user)
        content = make_content(user, word)
        expected = person.refusal()
        if name in person.messages or person.memories.get(name, (content, ""))[0] != content:
            expected = expected or Conflict
        elif name not in person.memories:
            expected = expected or person.closed(session)
        memories = self._store.memories(Scope(user, session_id=session))
        memory = NewMemory(memory_key=name, content=content)
        if not self._succeeds(memories.add([memory], origin=Origin.USER), expected):
            return
        self._people[user] = person
        person.open_session(session)
        if name not in person.memories:
            person.version += 1
            person.memories[name] = (content, session)

    @rule(user=USERS, session=SESSIONS, name=NAMES)
    def recall(self, user: str, session: str, name: str) -> None:
        person = self._person(user)
        expected = person.refusal() if user in self._people else NotFound
        traces = self._store.traces(Scope(user, session_id=session))
        if self._succeeds(traces.add(new_trace(name, f"{user} asks"), keep_days=30), expected):
            person.traces.setdefault(name, session)

    @rule(user=USERS, size=st.integers(1, 4))
    def read_pages(self, user: str, size: int) -> None:
        messages = self._run(read_pages(self._store.timeline(Scope(user)), page_size=size))

        assert [message.message_id for message in messages] == self._person(user).timeline()

    @rule(user=USERS, name=NAMES, before=COUNTS, after=COUNTS)
    def read_around(self, user: str, name: str, before: int, after: int) -> None:
        order = self._person(user).reading_order()
        neighbors = self._store.timeline(Scope(user)).neighbors(name, before=before, after=after)
        if name not in order:
            self._attempt(neighbors, NotFound)
            return
        position = order.index(name)
        expected = order[max(0, position - before) : position + after + 1]
        assert [message.message_id for message in self._run(neighbors).items] == expected

    @rule(user=USERS, session=SESSIONS)
    def end_session(self, user: str, session: str) -> None:
        person = self._person(user)
        expected = None if session in person.ended else NotFound
        if self._succeeds(self._store.owners.end_session(user, session), expected):
            person.ended[session] = True

    @rule(user=USERS, session=SESSIONS)
    def erase_session(self, user: str, session: str) -> None:
        person = self._person(user)
        exists = session in person.ended or session in person.traces.values()
        erasure = self._store.owners.erase_session(user, session)
        if not self._succeeds(erasure, None if exists else NotFound):
            return
        person.ended.pop(session, None)
        person.counters.pop(session, None)
        person.traces.clear()  # memories of other sessions may quote this one
        for name in [n for n, message in person.messages.items() if message.session == session]:
            del person.messages[name]
        for name in [n for n, (_, label) in person.memories.items() if label == session]:
            del person.memories[name]

    @rule(user=USERS)
    def erase_user(self, user: str) -> None:
        expected = None if user in self._people else NotFound
        if self._succeeds(self._store.owners.erase_user(user), expected):
            del self._people[user]

    @rule(user=USERS, enabled=st.booleans())
    def enable_user(self, user: str, enabled: bool) -> None:
        expected = None if user in self._people else NotFound
        if self._succeeds(self._store.owners.set_user_enabled(user, enabled), expected):
            self._people[user].enabled = enabled

    @rule()
    def reopen(self) -> None:
        self._run(self._store.close())
        self._store = self._run(Store.open(self._location))

    @invariant()
    def everybody_sees_exactly_their_own(self) -> None:
        for user in ("ann", "ben"):
            self._run(self._compare(user))

    async def _compare(self, user: str) -> None:
        person = self._person(user)
        page = (await self._store.timeline(Scope(user)).page(page_size=200)).items
        changed = {m.message_id: (m.content, m.session_id, m.sequence_no) for m in page}
        assert changed == {
            name: (model_message.content, model_message.session, model_message.sequence_no)
            for name, model_message in person.messages.items()
        }
        user_version = await self._store.feed(user).version()
        assert (user_version.version if user_version else 0) == person.version
        keys: dict[str, list[str]] = {"messages": [], "memories": []}
        async for changes in self._store.feed(user).changes(0, person.version, None):
            keys["messages"] += [row.key for row in changes.messages]
            keys["memories"] += [row.key for row in changes.memories]
        assert sorted(keys["messages"]) == sorted(person.messages)
        assert sorted(keys["memories"]) == sorted(person.memories)
        # The other user's memories cannot be read, even by their keys.
        all_keys = {name for other in self._people.values() for name in other.memories}
        records = await self._store.memories(Scope(user)).get_many(sorted(all_keys))
        assert {r.memory_key: (r.content, r.session_id) for r in records} == person.memories
        traces = (await self._store.traces(Scope(user)).page(200)).items
        assert {trace.trace_id: trace.session_id for trace in traces} == person.traces
        texts = [message.content for message in page] + [record.content for record in records]
        texts += [trace.query for trace in traces]
        assert all(text.startswith(user) for text in texts)

    async def _close(self) -> None:
        await self._store.close()


@LONG
def test_store_agrees_with_a_model(databases: Databases, engine: str, is_long: bool) -> None:
    examples = (500 if is_long else 12) // (1 if engine == "sqlite" else 3)
    steps = 40 if is_long else 20
    run_machine(lambda: Conversations(databases.fresh()), examples, steps, derandomize=not is_long)
