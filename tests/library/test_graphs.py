"""What every graph database promises: the store's tables on both engines, and Ladybug."""

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.errors import InvalidArgument
from memrecall.library.ladybug import LadybugGraphs
from memrecall.library.library import make_graphs
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.store import GraphDB, NewRelation, Store, StoreGraphs
from memrecall.store.database.statements import new_id

from ..cases import check_each_async
from ..databases import Databases
from ..memory.word_extractor import WordExtractor

ANN, BEN = Scope("ann"), Scope("ben")


@pytest.fixture(params=["sqlite", "postgresql", "ladybug"])
def engine(request: pytest.FixtureRequest) -> str:
    """Three homes of a graph; Ladybug beside a SQLite store."""
    return str(request.param)


@pytest.fixture
def location(engine: str, databases: Databases) -> str:
    """A file that is not a copy where Ladybug is: it tells databases apart by their ids."""
    return databases.fresh(migrated=engine == "postgresql")


@pytest.fixture
async def graphs(store: Store, engine: str, tmp_path: Path) -> AsyncIterator[GraphDB]:
    spec = f"ladybug:{tmp_path / 'graphs'}" if engine == "ladybug" else ""
    made = make_graphs(spec, store)
    yield made
    await made.close()


def related(found: list[tuple[str, str, Any]]) -> list[tuple[str, str, str]]:
    return [(r.source, r.relationship, r.destination) for _, _, r in found]


async def around(graphs: GraphDB, name: str, scope: Scope = ANN, **options: Any) -> Any:
    room = graphs.for_scope(scope)
    ids = [entity.entity_id for entity in await room.entities([name])]
    return related(await room.around(ids, **options))


class TestPromises:
    async def test_what_is_told_is_found_by_name(self, graphs: GraphDB) -> None:
        room = graphs.for_scope(ANN)
        assert await room.entities(["李明"]) == []
        new = NewRelation("李明", "studies_at", "北京大学", ("m1",))
        (made,) = await room.add({"李明": "person", "北京大学": "organization"}, [new])
        assert await room.add({}, [new]) == []  # known already

        (li,) = await room.entities([" 李明 "])
        assert (li.name, li.type, li.aliases) == ("李明", "person", ("李明",))
        ((source, _, relation),) = await room.around([li.entity_id])
        assert (source, relation.relation_id) == (li.entity_id, made)
        assert relation.source_message_ids == ("m1",)
        assert await around(graphs, "北京大学") == [("李明", "studies_at", "北京大学")]
        assert await around(graphs, "李明", BEN) == []

    async def test_names_are_compared_without_case_width_and_spaces(self, graphs: GraphDB) -> None:
        room = graphs.for_scope(ANN)
        await room.add({}, [NewRelation("Ann  Lee", "works_at", "ACME")])
        await room.add({}, [NewRelation("ann lee", "works_at", "Ａcme")])
        assert len(await around(graphs, "ANN LEE")) == 1
        assert {e.name for e in await room.page(limit=10)} == {"Ann  Lee", "ACME"}

    async def test_validity(self, graphs: GraphDB) -> None:
        room = graphs.for_scope(ANN)
        year = {n: datetime(n, 1, 1, tzinfo=UTC) for n in (2019, 2020, 2022, 2024)}
        await room.add({}, [NewRelation("Ann", "works_at", "ACME", (), year[2020])])
        await room.add({}, [NewRelation("Ann", "works_at", "ACME", (), year[2024], ended=True)])
        await room.add({}, [NewRelation("Ann", "works_at", "Initech", (), year[2024])])
        assert await around(graphs, "Ann") == [("Ann", "works_at", "Initech")]
        assert await around(graphs, "Ann", as_of=year[2022]) == [("Ann", "works_at", "ACME")]
        assert await around(graphs, "Ann", as_of=year[2019]) == []

    async def test_merging(self, graphs: GraphDB) -> None:
        room = graphs.for_scope(ANN)
        await room.add({"Bob": "person"}, [NewRelation("Bob", "lives_in", "Oslo")])
        await room.add({}, [NewRelation("ACME", "employs", "Robert"), NewRelation("x", "is", "y")])
        await room.merge("Robert", "Bob")
        await room.merge("robert", "BOB")  # nothing is left to do
        expected = [("Robert", "lives_in", "Oslo"), ("ACME", "employs", "Robert")]
        assert sorted(await around(graphs, "bob")) == sorted(expected)
        (robert,) = await room.entities(["bob"])
        assert robert.aliases == ("Bob", "Robert")
        assert len(await room.page(limit=10)) == 5

    async def test_agents_and_pages(self, graphs: GraphDB) -> None:
        for agent in ("a1", "a2"):
            room = graphs.for_scope(Scope("ann", agent))
            await room.add({}, [NewRelation("Ann", "knows", f"friend of {agent}")])
        assert await around(graphs, "Ann", Scope("ann", "a1")) == [("Ann", "knows", "friend of a1")]
        assert len(await around(graphs, "Ann")) == 2
        assert len(await around(graphs, "Ann", limit=1)) == 1
        whole = graphs.for_scope(ANN)
        first = await whole.page(limit=3)
        rest = await whole.page(limit=3, after=first[-1].entity_id)
        assert (len(first), len(rest)) == (3, 1)
        assert len(await graphs.for_scope(Scope("ann", "a2")).page(limit=10)) == 2

    async def test_what_cannot_name_anything_is_refused(self, graphs: GraphDB) -> None:
        room = graphs.for_scope(ANN)

        async def refuse(name: str) -> None:
            with pytest.raises(InvalidArgument):
                await room.add({}, [NewRelation(name, "is", "x")])
            with pytest.raises(InvalidArgument):
                await room.merge("x", name)
            assert await room.page(limit=10) == []

        await check_each_async(["", "  ", "x" * 300, "a\0b"], refuse)

    async def test_words_of_a_query_language_are_only_words(self, graphs: GraphDB) -> None:
        name = "x'}) DETACH DELETE (n) //"
        room = graphs.for_scope(ANN)
        await room.add({name: "DROP TABLE Entity"}, [NewRelation(name, "is' OR 1=1", '"$x')])
        assert await around(graphs, name) == [(name, "is' OR 1=1", '"$x')]
        assert await room.entities(["' OR 1=1"]) == []


def files_with(word: str, folder: Path) -> list[Path]:
    """The files of databases and graphs that contain a word."""
    files = [path for path in folder.rglob("*") if path.suffix in (".db", ".lbug")]
    return [path for path in files if word.encode() in path.read_bytes()]


def settings_of(location: str, engine: str, folder: Path) -> Settings:
    spec = f"ladybug:{folder / 'graphs'}" if engine == "ladybug" else ""
    return Settings(db=location, embedder="hash", snapshots=False, graph_db=spec)


class TestBehindTheMemory:
    async def test_two_hop_questions_export_import_and_erase(
        self, databases: Databases, engine: str, tmp_path: Path
    ) -> None:
        canary = "zqcanaryzq"
        first = settings_of(databases.fresh(migrated=engine == "postgresql"), engine, tmp_path)
        second = settings_of(databases.fresh(migrated=engine == "postgresql"), engine, tmp_path)
        async with AsyncMemory(settings=first, extractor=WordExtractor()) as memory:
            await memory.add(f"Ann works_at {canary} {canary} based_in Oslo", "ann", session_id="s")
            await memory.merge_entities(canary, f"{canary} Ltd", "ann")
            (way,) = (await memory.graph("Ann", "ann", to="Oslo"))["paths"]
            assert len(way) == 2
            lines = [line async for line in memory.export("ann")]
            tables = [line.partition('"table": "')[2].partition('"')[0] for line in lines]
            assert {"entities", "aliases", "relations"} <= set(tables)

            async with AsyncMemory(settings=second, extractor=WordExtractor()) as other:
                counts = await other.import_(lines, "ann")
                assert (counts["entities"], counts["aliases"], counts["relations"]) == (3, 4, 2)
                assert await other.graph("Ann", "ann", depth=2) == await memory.graph(
                    "Ann", "ann", depth=2
                )
                assert await other.import_(lines, "ann") == counts
                assert len((await other.graph(user_id="ann"))["entities"]) == 3

            await memory.erase("ann")
            assert (await memory.graph(user_id="ann"))["entities"] == []
        if engine != "postgresql":
            expected = {Path(second.db).name} if engine == "sqlite" else {second.db, "graph"}
            assert len(files_with(canary, tmp_path)) == len(expected)  # the other database's alone

    async def test_erasing_a_session_keeps_what_others_said(
        self, location: str, engine: str, tmp_path: Path
    ) -> None:
        settings = settings_of(location, engine, tmp_path)
        async with AsyncMemory(settings=settings, extractor=WordExtractor()) as memory:
            await memory.add("Ann works_at ACME", "ann", session_id="s1")
            await memory.add("Ann lives_in Oslo", "ann", session_id="s2")
            library = (await memory._open()).library
            await library.erase_session("ann", "s1")
            left = (await memory.graph("Ann", "ann"))["relations"]
            assert [(r["relationship"], r["destination"]) for r in left] == [("lives_in", "Oslo")]
            names = {e["name"] for e in (await memory.graph(user_id="ann"))["entities"]}
            assert names == {"Ann", "Oslo"}


NAMES = st.sampled_from(["Ann", "ann", "Bob", "北京", "ACME", "x"])
STEP = st.one_of(
    st.tuples(st.just("add"), NAMES, st.sampled_from(["knows", "is"]), NAMES, st.booleans()),
    st.tuples(st.just("merge"), NAMES, NAMES),
)


@pytest.fixture
async def homes(tmp_path: Path) -> AsyncIterator[list[GraphDB]]:
    """A store's tables and Ladybug, side by side."""
    async with await Store.open(str(tmp_path / "a.db"), durability="normal") as store:
        ladybug = LadybugGraphs(tmp_path / "graphs", "d")
        yield [StoreGraphs(store.database), ladybug]
        await ladybug.close()


@settings(max_examples=15, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(STEP, max_size=12))
async def test_ladybug_and_the_store_agree(
    homes: list[GraphDB], steps: list[tuple[Any, ...]]
) -> None:
    """Whatever is told in whatever order, both know the same."""
    scope = Scope(new_id("user"))
    for home in homes:
        room = home.for_scope(scope)
        for verb, *rest in steps:
            if verb == "merge":
                await room.merge(rest[0], rest[1])
            else:
                source, kind, destination, ended = rest
                await room.add({}, [NewRelation(source, kind, destination, ended=ended)])
    told = [await essence(home, scope) for home in homes]
    assert told[0] == told[1]


async def essence(home: GraphDB, scope: Scope) -> Any:
    room = home.for_scope(scope)
    entities = await room.page(limit=100)
    relations = await room.around([entity.entity_id for entity in entities])
    known = sorted((e.name, e.type, e.aliases) for e in entities)
    return known, sorted(related(relations))


async def test_a_setting_names_the_home(tmp_path: Path) -> None:
    for wrong in ("nowhere", "ladybug", "ladybug:"):
        settings = Settings(db=str(tmp_path / "a.db"), embedder="hash", graph_db=wrong)
        with pytest.raises(InvalidArgument):
            await Library.open(settings)
