"""What is deleted is in no answer of another process, which had it in its index before.

The other process is a service; each path is one of its answers. See test_forgetting.py for what
each verb hides and erases in one process, and docs/forgetting.md.
"""

import os
import re
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from memrecall.chat import GroupChat, Member, SingleChat
from memrecall.extraction.protocol import Fact
from memrecall.memory import AsyncMemory
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.testing import ScriptedClient, repeat, say
from memrecall.types import NewMessage, Role
from tests.cases import check_each_async
from tests.databases import Databases, PostgresqlDatabases, SqliteDatabases
from tests.hooks.payloads import SESSION, samples
from tests.rpc.mcp_clients import call_tool, over_http
from tests.server.server_process import run_server
from tests.waiting import wait_until

from ..store.samples import read_tables
from .conftest import make_settings
from .fixed_extractor import FixedExtractor, Known

pytestmark = [pytest.mark.service, pytest.mark.concurrent]

WORD = "Zanzibarq"
SAID = f"I live in {WORD} and I am allergic to peanuts."
HOME = f"User lives in {WORD}."
ALLERGY = "User is allergic to peanuts."
OTHER = "The weather is fine today."
QUESTION = "Where do I live?"
SHOP = "github.com/acme/shop"
_ENGINES = os.environ.get("MEMRECALL_TEST_ENGINES", "sqlite postgresql").split()
_NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


@dataclass(frozen=True)
class Place:
    """A database, and the service that another process runs on it."""

    location: str
    url: str
    folder: Path  # of the database, if it is a file, and of what the service caches

    @property
    def settings(self) -> Settings:
        return make_settings(self.location)


@pytest.fixture(scope="module", params=_ENGINES)
def engine(request: pytest.FixtureRequest) -> str:
    """The name of the engine under test."""
    return str(request.param)


@contextmanager
def open_place(engine: str, request: pytest.FixtureRequest, folder: Path) -> Iterator[Place]:
    """Run a service on a new database of an engine while the block runs."""
    databases: Databases
    if engine == "sqlite":
        databases = SqliteDatabases(folder, request.getfixturevalue("sqlite_template"))
    else:
        named = (request.getfixturevalue(name) for name in ("postgresql_server", "database_pool"))
        databases = PostgresqlDatabases(*named)
    location = databases.fresh()
    with run_server(folder, "--db", location, MEMRECALL_MODEL="") as server:
        yield Place(location, server.url, folder)
    if isinstance(databases, PostgresqlDatabases):
        databases.close()


@pytest.fixture(scope="module")
def place(
    engine: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    """A service of this module's own; each test has users of its own."""
    with open_place(engine, request, tmp_path_factory.mktemp("service")) as opened:
        yield opened


@pytest.fixture(scope="module")
def shop(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the project, in which a coding assistant starts."""
    folder = tmp_path_factory.mktemp("shop")
    (folder / ".git").mkdir()
    (folder / ".git" / "config").write_text(f'[remote "origin"]\n\turl = https://{SHOP}.git\n')
    return folder


@asynccontextmanager
async def open_writer(place: Place) -> AsyncIterator[AsyncMemory]:
    """Open the memory of this process, which deletes."""
    facts = (
        Fact(HOME, memory_type="user_profile", field="home"),
        Fact(ALLERGY, memory_type="user_profile", field="allergy"),
    )
    relations = (("user", "lives_in", WORD), ("user", "allergic_to", "peanuts"))
    extractor = FixedExtractor({SAID: Known(facts, relations)})
    async with AsyncMemory(settings=place.settings, extractor=extractor) as memory:
        yield memory


@dataclass(frozen=True)
class Story:
    """Two facts from one message of a user, between messages that say other things."""

    memory: AsyncMemory
    user: str
    message: str
    near: str  # the message after it
    home: str
    allergy: str
    trace: str
    url: str
    client: httpx.AsyncClient
    shop: Path

    async def get(self, path: str, **query: Any) -> str:
        """Return an answer of the service, or that there is none."""
        owner = {} if "/users/" in path else {"user_id": self.user}
        answer = await self.client.get(path, params={**owner, **query})
        assert answer.status_code in (200, 404), answer.text  # what was named may be deleted too
        return answer.text

    async def post(self, path: str, body: dict[str, Any], **headers: str) -> str:
        """Return an answer of the service."""
        answer = await self.client.post(path, json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.text

    async def change(self, key: str, verb: str) -> str:
        """Undo or purge a memory or a message by the service."""
        return await self.post(f"/v1/memories/{key}/{verb}?user_id={self.user}", {})

    async def page(self, path: str, **query: str) -> str:
        """Return a page of the dashboard with its content."""
        text = ""

        async def is_filled() -> bool:
            nonlocal text
            answer = await self.client.get(path, params={"user": self.user, **query})
            text = answer.text
            assert answer.status_code in (200, 404), text
            return "mr-loading" not in text  # else its content follows over a websocket

        await wait_until(is_filled)
        return text

    async def call(self, tool: str, **arguments: Any) -> str:
        """Return the result of a tool that an MCP client calls."""
        async with over_http(self.url, None, "auto", **{"X-Memrecall-User": self.user}) as client:
            return str(await call_tool(client, tool, **arguments))


Read = Callable[[Story], Awaitable[str]]


async def _search(story: Story) -> str:
    return await story.post("/v1/memories/search", {"user_id": story.user, "query": QUESTION})


async def _lists(story: Story) -> str:
    return await story.get("/v1/memories", kinds="all")


async def _messages(story: Story) -> str:
    return await story.get(f"/v1/users/{story.user}/messages")


async def _messages_by_words(story: Story) -> str:
    body = {"user_id": story.user, "query_text": "live"}
    return await story.post("/v1/messages/lexical_search", body)


async def _messages_by_meaning(story: Story) -> str:
    body = {"user_id": story.user, "query_text": "I live in"}
    return await story.post("/v1/messages/semantic_search", body)


async def _recall(story: Story) -> str:
    return await story.post(f"/v1/users/{story.user}/recall", {"query": QUESTION})


async def _neighbours(story: Story) -> str:
    return await story.get(f"/v1/users/{story.user}/messages/{story.near}/neighbors")


async def _state(story: Story) -> str:
    return await story.get("/v1/state", session_id="s", max_tokens=500)


async def _summaries(story: Story) -> str:
    return await story.post("/v1/sessions/s/summarize", {"user_id": story.user})


async def _graph(story: Story) -> str:
    return await story.get("/v1/graph")


async def _profile(story: Story) -> str:
    return await story.get("/v1/profile")


async def _history(story: Story) -> str:
    return await story.get(f"/v1/memories/{story.allergy}/history")


async def _chat(story: Story) -> str:
    body = {"message": QUESTION, "session_id": "s"}
    return await story.post(f"/v1/users/{story.user}/chat", body, Accept="text/event-stream")


async def _brief(story: Story) -> str:
    (start,) = [
        each
        for each in samples("", "", str(story.shop))
        if (each.client, each.event) == ("claude-code", "SessionStart")
    ]
    path = f"/v1/users/{story.user}/hooks/{start.client}/{start.event}"
    return await story.post(path, {**start.payload, "session_id": SESSION})


async def _dashboard(story: Story) -> str:
    pages = [
        ("/explorer", {}),
        ("/explorer", {"q": "live"}),
        ("/explorer", {"around": story.near}),
        ("/explorer/memories", {}),
        ("/explorer/memories", {"q": QUESTION}),
        ("/explorer/memory", {"key": story.allergy}),
        ("/explorer/graph", {}),
        ("/explorer/sessions", {}),
        ("/explorer/session", {"id": "s"}),
        ("/recalls", {}),
    ]
    return "\n".join([await story.page(path, **query) for path, query in pages])


async def _trace(story: Story) -> str:
    return await story.page("/recalls/trace", id=story.trace)


async def _mcp(story: Story) -> str:
    calls = [
        ("recall", {"query": QUESTION}),
        ("search_messages", {"query": "live"}),
        ("list_memories", {}),
    ]
    return "\n".join([await story.call(tool, **arguments) for tool, arguments in calls])


async def _resources(story: Story) -> str:
    async with over_http(story.url, None, "auto", **{"X-Memrecall-User": story.user}) as client:
        memories = await client.read_resource("memrecall://memories")
        if f"traces/{story.trace}" not in str(await client.read_resource("memrecall://traces")):
            return str(memories)  # the trace is erased
        return str([memories, await client.read_resource(f"memrecall://traces/{story.trace}")])


@dataclass(frozen=True)
class Answer:
    """An answer of the service, and what it shows: memories, messages or both.

    Summaries and traces show neither once a memory of theirs is deleted.
    """

    read: Read
    memories: bool = True
    messages: bool = True
    is_stored: bool = False  # as a message, so that it may not be read before the deletion


ANSWERS = {
    "search": Answer(_search),
    "lists": Answer(_lists),
    "messages": Answer(_messages, memories=False),
    "messages by words": Answer(_messages_by_words, memories=False),
    "messages by meaning": Answer(_messages_by_meaning, memories=False),
    "recall": Answer(_recall),
    "neighbours": Answer(_neighbours, memories=False),
    "state": Answer(_state),
    "summaries": Answer(_summaries, memories=False, messages=False),
    "graph": Answer(_graph, messages=False),
    "profile": Answer(_profile, messages=False),
    "history of another memory": Answer(_history, memories=False),
    "chat": Answer(_chat, is_stored=True),
    "brief": Answer(_brief, memories=False),
    "dashboard": Answer(_dashboard),
    "trace": Answer(_trace, memories=False, messages=False),
    "mcp": Answer(_mcp),
    "mcp resources": Answer(_resources, messages=False),
}


async def _delete(story: Story) -> None:
    assert (await story.memory.delete(story.home))["messages"] == [story.message]


async def _forget(story: Story) -> None:
    assert (await story.memory.forget(story.home))["messages"] == [story.message]


async def _delete_message(story: Story) -> None:
    deleted = await story.memory.delete(story.message)
    assert set(deleted["memories"]) == {story.home, story.allergy}


async def _delete_all(story: Story) -> None:
    deleted = await story.memory.delete_all()
    assert (deleted["memories"], deleted["messages"] >= 2) == (2, True)


async def _expire(story: Story) -> None:
    """Set an expiry, and wait until it has passed: nothing is written at that moment."""
    at = datetime.now(UTC) + timedelta(seconds=1)
    await story.memory.update(story.home, expires_at=at)
    await wait_until(lambda: datetime.now(UTC) > at)


async def _purge(story: Story) -> None:
    assert (await story.memory.purge(story.home))["messages"] == [story.message]


async def _purge_message(story: Story) -> None:
    assert (await story.memory.purge(story.message))["purged"] == 1


async def _undo(story: Story) -> None:
    await story.memory.undo(story.home)


async def _undo_message(story: Story) -> None:
    await story.memory.undo(story.message)


async def _undo_all(story: Story) -> None:
    await story.memory.undo(story.near)
    await story.memory.undo(story.home)
    await story.memory.undo(story.allergy)


Verb = Callable[[Story], Awaitable[None]]
# The verbs with what brings back what they hide.
VERBS: dict[str, tuple[Verb, Verb | None]] = {
    "delete": (_delete, _undo),
    "forget": (_forget, _undo),
    "delete a message": (_delete_message, _undo_message),
    "delete all": (_delete_all, _undo_all),
    "expiry": (_expire, _undo),
    "purge": (_purge, None),
    "purge a message": (_purge_message, None),
}

MakeStory = Callable[[str], Awaitable[Story]]


@asynccontextmanager
async def open_stories(place: Place, shop: Path) -> AsyncIterator[MakeStory]:
    """Yield a function that tells the story of a new user."""

    async def make(name: str) -> Story:
        user = re.sub(r"\W+", "-", name)
        memory = writer.bind(user_id=user)
        added = await memory.add(SAID, session_id="s", project=SHOP)
        home, allergy = (item["id"] for item in added["results"])
        near = await memory.add(OTHER, session_id="s")
        recalled = await memory.recall(QUESTION)
        return Story(
            memory=memory,
            user=user,
            message=added["messages"][0],
            near=near["messages"][0],
            home=home,
            allergy=allergy,
            trace=recalled.trace.trace_id,
            url=place.url,
            client=client,
            shop=shop,
        )

    async with (
        open_writer(place) as writer,
        httpx.AsyncClient(base_url=place.url, timeout=60, verify=_NO_CERTIFICATES) as client,
    ):
        yield make


@pytest.fixture
async def make_story(place: Place, shop: Path) -> AsyncIterator[MakeStory]:
    """A function that tells the story of a new user."""
    async with open_stories(place, shop) as make:
        yield make


async def shows(answer: Answer, story: Story) -> bool:
    """Return True if an answer contains the word."""
    return WORD in await answer.read(story)


@pytest.mark.parametrize("name", ANSWERS)
async def test_deleted_is_in_no_answer(name: str, make_story: MakeStory) -> None:
    answer = ANSWERS[name]

    async def check(verb: str) -> None:
        story = await make_story(f"{name}, {verb}")
        before = ANSWERS["search"] if answer.is_stored else answer
        await wait_until(lambda: shows(before, story))  # the index is loaded
        apply, take_back = VERBS[verb]
        await apply(story)
        assert not await shows(answer, story)
        if take_back is not None:
            await take_back(story)
            await wait_until(lambda: shows(answer, story))  # vectors follow

    await check_each_async(VERBS, check)


@pytest.mark.parametrize("name", ANSWERS)
async def test_kept_messages_and_other_memories_stay(name: str, make_story: MakeStory) -> None:
    answer = ANSWERS[name]
    story = await make_story(f"{name}, kept")
    await ANSWERS["search"].read(story)
    await story.memory.delete(story.home, sources=False)
    text = await answer.read(story)
    assert HOME not in text
    assert (WORD in text) == answer.messages
    assert ("peanuts" in text) == (answer.messages or answer.memories)


def files_with_word(folder: Path) -> list[str]:
    """Return the files that contain the word, also as a search index does."""
    words = (WORD.encode(), WORD.lower().encode())
    files = [file for file in folder.rglob("*") if file.is_file()]
    return [file.name for file in files if any(word in file.read_bytes() for word in words)]


async def test_purged_is_in_no_file(
    engine: str, request: pytest.FixtureRequest, tmp_path: Path, shop: Path
) -> None:
    """Neither in the database and its log, nor in the index that the service has saved.

    SQLite overwrites erased bytes at once, without `compact`; PostgreSQL with its next vacuum.
    """
    with open_place(engine, request, tmp_path) as place:
        async with open_stories(place, shop) as make_story:
            story = await make_story("ann")
            store = (await story.memory._open()).library.store
            many = [NewMessage(role=Role.USER, content=f"Line {n}") for n in range(600)]
            await store.timeline(Scope("ann", session_id="many")).add(many)
            await wait_until(lambda: shows(ANSWERS["search"], story))
            suffixes = {Path(name).suffix for name in files_with_word(tmp_path)}
            assert ".npz" in suffixes  # the index, which the first search has saved
            await story.memory.purge(story.home)
            assert not await shows(ANSWERS["search"], story)
            if engine == "postgresql":
                await store.database.compact()
            assert files_with_word(tmp_path) == []
            assert WORD.lower() not in str(await read_tables(store.database)).lower()


async def test_export_of_what_is_deleted_hides_it_and_of_what_is_purged_lacks_it(
    make_story: MakeStory,
) -> None:
    """An export is complete, so that an import can be undone too."""

    async def check(verb: str) -> None:
        story = await make_story(f"export, {verb}")
        apply, take_back = VERBS[verb]
        await apply(story)
        exported = await story.get(f"/v1/users/{story.user}/export")
        assert (WORD in exported) == (take_back is not None)
        await story.memory.bind().erase()
        lines = {"Content-Type": "application/x-ndjson"}
        path = f"/v1/users/{story.user}/import"
        answer = await story.client.post(path, content=exported, headers=lines)
        assert answer.status_code == 200, answer.text
        for name in ("search", "lists", "messages", "graph", "summaries"):
            assert not await shows(ANSWERS[name], story), name
        if take_back is not None:
            await take_back(story)
            await wait_until(lambda: shows(ANSWERS["search"], story))

    await check_each_async(VERBS, check)


async def test_message_that_is_deleted_leaves_the_history_of_a_chat(make_story: MakeStory) -> None:
    story = await make_story("history of a chat")
    library = (await story.memory._open()).library
    client = ScriptedClient(repeat(say("Noted."), 3))
    chat = SingleChat(library, Scope(story.user, session_id="s"), client)
    verbs = (_delete, _undo, _purge_message)
    for verb, is_shown in zip(verbs, (False, True, False), strict=True):
        await verb(story)
        await chat.answer("And now?")
        assert (WORD in str(client.requests[-1].messages)) == is_shown


async def test_message_that_is_deleted_leaves_a_group_chat(make_story: MakeStory) -> None:
    """It is in the history of a member who has spoken, and in what a new member has to read."""
    story = await make_story("group chat")
    library = (await story.memory._open()).library
    client = ScriptedClient(repeat(say("Noted."), 7))
    names = ("old", "first", "second", "third")
    members = [Member(member_id=name, name=name, ai=True) for name in names]
    members.append(Member(member_id="ann", name="Ann"))
    chat = GroupChat(library, Scope(story.user, session_id="s"), members, client)
    await chat.answer("old")
    assert WORD in str(client.requests[-1].messages)
    verbs = (_delete, _undo, _purge_message)
    for verb, new, is_shown in zip(verbs, names[1:], (False, True, False), strict=True):
        await verb(story)
        await chat.post("ann", "And now?")
        for member in ("old", new):
            await chat.answer(member)
            assert (WORD in str(client.requests[-1].messages)) == is_shown


async def _delete_by_http(story: Story) -> None:
    path = f"/v1/memories/{story.home}"
    answer = await story.client.delete(path, params={"user_id": story.user})
    assert answer.json()["messages"] == [story.message]


async def _delete_message_by_http(story: Story) -> None:
    path = f"/v1/users/{story.user}/messages/{story.message}"
    assert (await story.client.delete(path)).json()["deleted"] == 1


async def _delete_all_by_http(story: Story) -> None:
    answer = await story.client.delete("/v1/memories", params={"user_id": story.user})
    deleted = answer.json()
    assert (deleted["memories"], deleted["messages"], deleted["deleted"]) == (2, 2, 4)


async def _forget_by_mcp(story: Story) -> None:
    assert story.home in await story.call("forget", memory_key=story.home)


async def _purge_by_http(story: Story) -> None:
    assert story.message in await story.change(story.home, "purge")


async def _undo_by_http(story: Story) -> None:
    await story.change(story.home, "undo")


async def _undo_message_by_http(story: Story) -> None:
    await story.change(story.message, "undo")


# What the service does, while this process has the index.
REQUESTS: dict[str, tuple[Verb, Verb | None]] = {
    "delete by http": (_delete_by_http, _undo_by_http),
    "delete a message by http": (_delete_message_by_http, _undo_message_by_http),
    "delete all by http": (_delete_all_by_http, _undo_by_http),
    "forget by mcp": (_forget_by_mcp, _undo_by_http),
    "purge by http": (_purge_by_http, None),
}


async def test_request_to_the_service_hides_it_in_this_process(make_story: MakeStory) -> None:
    async def read(story: Story) -> str:
        memory = story.memory.bind(session_id="s")
        answers = [
            await memory.search(QUESTION),
            await memory.get_all(kinds="all"),
            await memory.recall(QUESTION),
            await memory.state(500),
            await memory.summarize(),
            await memory.graph(),
            await (await memory.long_term()).user_info.profile(),
        ]
        return str(answers)

    async def check(verb: str) -> None:
        story = await make_story(verb)
        assert WORD in await read(story)
        apply, take_back = REQUESTS[verb]
        await apply(story)
        assert WORD not in await read(story)
        if take_back is not None:
            await take_back(story)
            assert WORD in await read(story)

    await check_each_async(REQUESTS, check)
