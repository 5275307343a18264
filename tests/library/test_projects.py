"""Projects: what is said in one repository is not read in another, on any path."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import pytest

from memrecall.agent.blocks import write_block
from memrecall.errors import InvalidArgument, NotFound, StorageError
from memrecall.importers.projects import find_project
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.search import LexicalQuery, SearchRequest, SemanticQuery
from memrecall.store import MemoryQuery, read_filter
from memrecall.types import NewMemory, NewMessage, Origin, Role

from ..counting import recorded_statements
from ..memory.word_extractor import WordExtractor

SHOP, BLOG = "github.com/acme/shop", "/home/ann/blog"
SECRET = "zephyr"  # only said in the shop
ASKED = "which release is deployed"
IN_SHOP, IN_BLOG = Scope("ann", project=SHOP), Scope("ann", project=BLOG)

Read = Callable[[AsyncMemory, Library, Scope], Awaitable[Any]]


@pytest.fixture
async def memory(library: Library) -> AsyncIterator[AsyncMemory]:
    """Two projects of one user, in sessions of their own and in one that they share."""
    async with AsyncMemory(library=library, extractor=WordExtractor()) as everything:
        ann = everything.bind(user_id="ann")
        shop, blog = ann.bind(project=SHOP), ann.bind(project=BLOG)
        for session in ("shop", "both"):
            short_term = await shop.short_term(session_id=session)
            said = f"deploy: {SECRET} nine. {SECRET}Bot works_at {SECRET}Inc"
            await shop.add(
                {"role": "user", "content": said, "message_id": f"said-{session}"},
                session_id=session,
            )
            await short_term.checkpoint()
        note = NewMemory(content=f"the {SECRET} release is deployed at noon", memory_key="note")
        await library.add_memories(IN_SHOP, [note], origin=Origin.USER, actor="test")
        await shop.update("note", f"the {SECRET} release is deployed at one")
        await blog.add("deploy: hugo. bob works_at acme", session_id="both")
        await ann.add("tea: green.", session_id="chat")
        await ann.summarize(session_id="both")
        await ann.summarize(session_id="shop")
        await shop.recall(ASKED)
        await library.vectors.settle()
        yield everything


async def _search(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    return [await memory.search(ASKED, rerank=rerank, explain=True) for rerank in (True, False)]


async def _engine(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    requests = [
        SearchRequest(ASKED),
        SearchRequest(ASKED, mode="keyword"),
        SearchRequest(f"{SECRET}*", syntax="query"),
        SearchRequest(ASKED, mode="semantic", session_id="both"),
    ]
    return [(await library.search(scope, request)).results for request in requests]


async def _filtered(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    return await memory.search(ASKED, filters={"project": SHOP}, show_expired=True)


async def _messages(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    words = await library.find_messages(scope, LexicalQuery(SECRET))
    near = await library.nearest_messages(scope, SemanticQuery(ASKED))
    return words.items, near.items


async def _timeline(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    timeline = library.store.timeline(scope)
    (tea, *_) = (await timeline.page(order="desc")).items
    pages = [(await timeline.page(order=order)).items for order in ("asc", "desc")]
    around = (await timeline.neighbors(tea.message_id, before=9)).items
    thread = await timeline.thread(session_id="both", limit=9)
    keys = await timeline.keys(read_filter({"project": SHOP}))
    return pages, around, thread, await timeline.get_many(["said-shop", "said-both", *keys])


async def _memories(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    pages = await memory.get_all(superseded=True), await memory.get_all(kinds="messages")
    stored = library.store.memories(scope)
    states = await stored.citing(["said-shop"]), await stored.get_states(["note"])
    return pages, states, await stored.keys(MemoryQuery(read_filter({"project": SHOP})))


async def _by_key(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    return [await memory.get(key) for key in ("note", "said-both")]


async def _sessions(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    listed = (await library.store.session_list(scope).page(9)).items
    states = [await memory.state(200, session_id=name) for name in ("shop", "both")]
    summaries = [
        await library.store.session_state(replace(scope, session_id=name)).summaries()
        for name in ("shop", "both")
    ]
    return listed, states, summaries


async def _short_term(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    found: list[Any] = []
    for name in ("shop", "both"):
        found += (await memory.short_term(session_id=name)).items
        stored = library.store.session_state(replace(scope, session_id=name))
        found.append(await stored.latest())
    return found


async def _graph(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    about = [await memory.graph(f"{SECRET}Bot"), await memory.graph(f"{SECRET}Inc", depth=2)]
    return await memory.graph(), about, await library.graph(scope).latest(9)


async def _recall(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    result = await memory.recall(ASKED)
    return result.model_dump(mode="json"), write_block(result)


async def _traces(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    page = await library.store.traces(scope).page()
    return [await library.store.traces(scope).get(item.trace_id) for item in page.items]


async def _export(memory: AsyncMemory, library: Library, scope: Scope) -> Any:
    return [line async for line in memory.export()]


READS: list[Read] = [
    _search, _engine, _filtered, _messages, _timeline, _memories, _by_key, _sessions,
    _short_term, _graph, _recall, _traces, _export,
]  # fmt: skip


@pytest.mark.parametrize("read", READS, ids=lambda read: read.__name__.strip("_"))
async def test_nothing_of_a_project_is_read_in_another(
    memory: AsyncMemory, library: Library, read: Read
) -> None:
    for scope, is_read in (
        (IN_BLOG, False),
        (IN_SHOP, True),
        (Scope("ann"), True),
        (Scope("ann", project=BLOG, all_projects=True), True),
    ):
        bound = memory.bind(user_id="ann", project=scope.project, all_projects=scope.all_projects)
        if read in (_short_term, _traces) and scope.read_project is None:
            continue  # short-term memories and traces are those of the calls in this scope
        found = repr(await read(bound, library, scope))
        assert (SECRET in found) == is_read, (scope, found)


async def test_a_project_reads_what_belongs_to_none(memory: AsyncMemory) -> None:
    for project in (SHOP, BLOG):
        bound = memory.bind(user_id="ann", project=project)
        found = await bound.search("tea green")
        assert any("green" in item["memory"] for item in found["results"])


async def test_rows_have_the_project_of_their_scope_else_their_own(library: Library) -> None:
    def message(name: str) -> NewMessage:
        return NewMessage(message_id=name, role=Role.USER, content=name, project=BLOG)

    await library.add_messages(IN_SHOP, [message("m1")])
    await library.add_messages(Scope("ann"), [message("m2")])
    stored = await library.store.timeline(Scope("ann")).get_many(["m1", "m2"])
    assert {m.message_id: m.project for m in stored} == {"m1": SHOP, "m2": BLOG}

    memories = [
        NewMemory(content="uses Kamal", memory_key="from-source", source_message_ids=("m2",)),
        NewMemory(content="likes tea", memory_key="person", memory_type="user_preference"),
        NewMemory(
            content="Bob likes tea", memory_key="bob", memory_type="user_preference", subject="Bob",
            source_message_ids=("m2",),
        ),
    ]  # fmt: skip
    await library.add_memories(Scope("ann"), memories, origin=Origin.USER, actor="test")
    records = await library.store.memories(Scope("ann")).get_many(["from-source", "person", "bob"])
    projects = {record.memory_key: record.project for record in records}
    assert projects == {"from-source": BLOG, "person": None, "bob": BLOG}


async def test_messages_stored_as_memories_keep_their_projects(memory: AsyncMemory) -> None:
    said = NewMessage(role=Role.USER, content="the blog is made with hugo", project=BLOG)
    await memory.add([said], user_id="ben", infer=False)
    await memory.add("made with rails", user_id="ben", infer=False, project=SHOP)
    for page in (
        await memory.get_all(user_id="ben"),
        await memory.get_all(user_id="ben", kinds="messages"),
    ):
        assert {item["project"] for item in page["results"]} == {SHOP, BLOG}


async def test_a_summary_is_of_the_whole_session_and_not_read_in_one_project(
    memory: AsyncMemory, library: Library
) -> None:
    for project, text in ((SHOP, "kamal deploys"), (BLOG, "hugo builds")):
        await memory.add(text, user_id="ann", project=project, session_id="mixed")
    shop = memory.bind(user_id="ann", project=SHOP)
    assert (await shop.summarize(session_id="mixed"))["results"] == []
    everything = await memory.bind(user_id="ann").summarize(session_id="mixed")
    assert "kamal" in repr(everything)
    assert "hugo" in repr(everything)


async def test_the_same_statement_is_known_in_each_project(memory: AsyncMemory) -> None:
    for project in (SHOP, BLOG):
        added = await memory.add("lint: ruff.", user_id="cy", project=project)
        assert [item["event"] for item in added["results"]] == ["ADD"]
    changed = await memory.add("lint: flake8.", user_id="cy", project=BLOG)
    assert [item["event"] for item in changed["results"]] == ["UPDATE"]
    shop = await memory.get_all(user_id="cy", project=SHOP)
    assert [item["memory"] for item in shop["results"]] == ["user's lint is ruff"]
    assert (await memory.sweep(user_id="cy"))["found"] == 0


async def test_a_bound_project_cannot_be_left(memory: AsyncMemory) -> None:
    blog = memory.bind(user_id="ann", project=BLOG)
    with pytest.raises(InvalidArgument, match="bound to project"):
        await blog.search(ASKED, project=SHOP)
    with pytest.raises(InvalidArgument, match="bound to project"):
        blog.bind(project=SHOP)
    assert SECRET not in repr(await blog.bind(all_projects=True).search(ASKED))
    with pytest.raises(NotFound):
        await blog.update("note", "mine now")
    with pytest.raises(InvalidArgument, match="bound to a project"):
        await blog.erase()
    found = await blog.delete_all(dry_run=True)  # not the tea, which is of none
    assert (found["memories"], found["messages"]) == (1, 1)


@pytest.mark.parametrize("name", ["", "x" * 256, "a\0b"])
def test_names_that_cannot_be_stored_are_refused(name: str) -> None:
    with pytest.raises(InvalidArgument):
        Scope("ann", project=name)


async def test_a_folder_that_gets_a_remote_is_renamed(
    memory: AsyncMemory, library: Library
) -> None:
    owners, remote = library.store.owners, "github.com/ann/blog"
    blog = memory.bind(user_id="ann", project=remote)
    assert "hugo" not in repr(await blog.search("deploy hugo"))
    assert await owners.rename_project("ann", BLOG, remote) == 2
    assert "hugo" in repr(await blog.search("deploy hugo"))
    with recorded_statements() as statements:
        assert await owners.rename_project("ann", BLOG, remote) == 0
    assert len(statements) == 1
    assert "hugo" not in repr(await memory.search("deploy hugo", user_id="ann", project=BLOG))


async def test_projects_cost_no_statement(memory: AsyncMemory, library: Library) -> None:
    counts = []
    for scope in (Scope("ann"), IN_SHOP):
        await library.search(scope, SearchRequest(ASKED))
        with recorded_statements() as statements:
            await library.search(scope, SearchRequest(ASKED))
            await library.store.timeline(scope).page()
            await library.store.memories(scope).page()
        counts.append(len(statements))
        if scope.project is None:
            assert not any("project =" in statement for statement in statements)
    assert counts[0] == counts[1]


async def test_projects_are_listed_exported_and_erased(
    memory: AsyncMemory, library: Library
) -> None:
    ann = memory.bind(user_id="ann", actor="ops")
    listed = {p.project: p for p in await library.store.owners.list_projects("ann")}
    assert (listed[SHOP].messages, listed[SHOP].sessions, listed[SHOP].memories) == (2, 2, 2)

    lines = [line async for line in ann.export(project=SHOP)]
    assert {json.loads(line)["table"] for line in lines} >= {"sessions", "messages", "memories"}
    assert not any("green" in line or "hugo" in line for line in lines)
    await memory.import_(lines, user_id="copy")
    (copied,) = await library.store.owners.list_projects("copy")
    assert (copied.project, copied.messages, copied.memories) == (SHOP, 2, 2)
    with pytest.raises(NotFound):
        [line async for line in ann.export(project="unknown")]

    assert await ann.erase_project(SHOP) == {"messages": 2, "memories": 2}
    assert SECRET not in "".join([line async for line in ann.export()])
    assert SECRET not in repr([await read(ann, library, Scope("ann")) for read in READS])
    assert [p.project for p in await library.store.owners.list_projects("ann")] == [BLOG]
    log = (await library.store.audit(Scope("ann")).page(limit=50)).items
    (entry,) = [entry for entry in log if entry.action == "erase_project"]
    assert (entry.actor, entry.target, entry.count) == ("ops", SHOP, 4)
    again = [NewMessage(message_id="said-shop", role=Role.USER, content="again")]
    assert (await library.add_messages(IN_SHOP, again)).stored == 0
    assert await library.store.find_damage(deep=True) == {
        name: [] for name in ("integrity", "tables", "references")
    }
    with pytest.raises(NotFound):
        await ann.erase_project(SHOP)


async def test_rows_of_an_earlier_export_take_their_workspace(
    memory: AsyncMemory, library: Library
) -> None:
    said = NewMessage(message_id="old", role=Role.USER, content="hi", metadata={"workspace": BLOG})
    await library.add_messages(Scope("dan"), [said])
    records = [json.loads(line) async for line in memory.export("dan")]
    for record in records:
        record["row"].pop("project", None)
    await memory.import_(map(json.dumps, records), user_id="eve")
    (message,) = await library.store.timeline(Scope("eve")).get_many(["old"])
    assert message.project == BLOG


async def test_a_recall_names_other_projects_and_quotes_none(
    library: Library, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memrecall.agent.result_builder._LIKELY", 0.05)
    async with AsyncMemory(library=library, user_id="ann") as memory:
        await memory.add("the zephyr release is deployed at noon", infer=False, project=SHOP)
        await memory.add("the posts are written in markdown", infer=False, project=BLOG)
        await library.vectors.settle()
        elsewhere = await memory.recall(ASKED, project=BLOG)
        assert elsewhere.other_projects == [SHOP]
        block = write_block(elsewhere)
        assert f"Something in another project fits, which is not shown here: {SHOP}." in block
        assert "noon" not in block
        assert (await memory.recall(ASKED, project=SHOP)).other_projects == []
        assert (await memory.recall(ASKED)).other_projects == []

        search = library.search

        async def fail_elsewhere(scope: Scope, *args: Any) -> Any:
            if scope.all_projects:
                raise StorageError("the disk failed")
            return await search(scope, *args)

        monkeypatch.setattr(library, "search", fail_elsewhere)
        recalled = await memory.recall(ASKED, project=BLOG)
        assert (recalled.stop_reason, recalled.other_projects) == ("handoff", [])


def test_long_names_of_folders_are_shortened(tmp_path: Any) -> None:
    folder = tmp_path.joinpath(*["x" * 100] * 4)
    folder.mkdir(parents=True)
    names = {find_project(str(folder)), find_project(str(folder.parent))}
    assert len(names) == 2
    assert all(len(name) <= 255 for name in names)
