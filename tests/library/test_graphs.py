"""The graph databases: the store's tables on both engines, and one outside the store."""

from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory, Library
from memrecall.scope import Scope
from memrecall.settings import Settings
from memrecall.store import Graph, GraphDB, NewRelation, Store, StoreGraphs
from memrecall.store.graph import WITHDRAWN

from ..cases import check_each_async
from ..databases import Databases
from ..memory.word_extractor import WordExtractor
from .documented_graphs import documented_graphs

ANN, BEN = Scope("ann"), Scope("ben")


@pytest.fixture(params=["sqlite", "postgresql", "documented"])
def engine(request: pytest.FixtureRequest) -> str:
    """The kinds of graph databases; the last is used with a SQLite store."""
    return str(request.param)


@pytest.fixture
def graphs(store: Store, engine: str) -> GraphDB:
    created: GraphDB = documented_graphs()
    return created if engine == "documented" else StoreGraphs(store.database)


def to_triples(relations: list[tuple[str, str, Any]]) -> list[tuple[str, str, str]]:
    return [(r.source, r.relationship, r.destination) for _, _, r in relations]


async def relations_around(graphs: GraphDB, name: str, scope: Scope = ANN, **options: Any) -> Any:
    graph = Graph(graphs, scope)
    ids = [entity.entity_id for entity in await graph.entities([name])]
    return to_triples(await graph.around(ids, **options))


class TestGraph:
    async def test_added_relation_is_read_by_either_name(self, graphs: GraphDB) -> None:
        graph = Graph(graphs, ANN)
        assert await graph.entities(["李明"]) == []
        new = NewRelation("李明", "studies_at", "北京大学", ("m1",))
        (created,) = await graph.add({"李明": "person", "北京大学": "organization"}, [new])
        assert await graph.add({}, [new]) == []  # stored already

        (li,) = await graph.entities([" 李明 "])
        assert (li.name, li.type, li.aliases) == ("李明", "person", ("李明",))
        ((source, _, relation),) = await graph.around([li.entity_id])
        assert (source, relation.relation_id) == (li.entity_id, created)
        assert relation.source_message_ids == ("m1",)
        assert await relations_around(graphs, "北京大学") == [("李明", "studies_at", "北京大学")]
        assert await relations_around(graphs, "李明", BEN) == []

    async def test_relations_are_found_by_their_ids_ended_or_not(self, graphs: GraphDB) -> None:
        graph = Graph(graphs, ANN)
        new = [NewRelation("Ann", "likes", name, ("m1",)) for name in ("tea", "茶", "milk")]
        first, second, _ = await graph.add({}, new)
        await graph.revise({second: WITHDRAWN})
        stored = {relation.relation_id: relation for relation in await graph.find([first, second])}
        assert {key: r.destination for key, r in stored.items()} == {first: "tea", second: "茶"}
        assert (stored[first].valid_to, stored[second].valid_to) == (None, WITHDRAWN)
        assert {r[2] for r in await relations_around(graphs, "Ann")} == {"tea", "milk"}
        assert await Graph(graphs, BEN).find([first]) == []

    async def test_names_are_compared_without_case_width_and_spaces(self, graphs: GraphDB) -> None:
        graph = Graph(graphs, ANN)
        await graph.add({}, [NewRelation("Ann  Lee", "works_at", "ACME")])
        await graph.add({}, [NewRelation("ann lee", "works_at", "Ａcme")])
        assert len(await relations_around(graphs, "ANN LEE")) == 1
        assert {e.name for e in await graph.page(limit=10)} == {"Ann  Lee", "ACME"}

    async def test_around_returns_relations_valid_at_a_time(self, graphs: GraphDB) -> None:
        graph = Graph(graphs, ANN)
        year = {n: datetime(n, 1, 1, tzinfo=UTC) for n in (2019, 2020, 2022, 2024)}
        await graph.add({}, [NewRelation("Ann", "works_at", "ACME", (), year[2020])])
        await graph.add({}, [NewRelation("Ann", "works_at", "ACME", (), year[2024], ended=True)])
        await graph.add({}, [NewRelation("Ann", "works_at", "Initech", (), year[2024])])
        assert await relations_around(graphs, "Ann") == [("Ann", "works_at", "Initech")]
        assert await relations_around(graphs, "Ann", as_of=year[2022]) == [
            ("Ann", "works_at", "ACME")
        ]
        assert await relations_around(graphs, "Ann", as_of=year[2019]) == []

    async def test_limits_count_valid_relations(self, graphs: GraphDB) -> None:
        graph = Graph(graphs, ANN)
        names = [f"friend {number}" for number in range(9)]
        new = [NewRelation("Ann", "knows", name) for name in names]
        await graph.add({}, new)
        await graph.add({}, [replace(relation, ended=True) for relation in new[4:]])
        await Graph(graphs, BEN).add({}, [NewRelation("Ben", "knows", "Tom")])
        for limit in (1, 3, 4, 9):
            latest = names[:4][-limit:]
            assert [r.destination for r in await graph.latest(limit)] == latest[::-1]
            around = await relations_around(graphs, "Ann", limit=limit)
            assert [relation[2] for relation in around] == latest

    async def test_merge_moves_relations_and_aliases(self, graphs: GraphDB) -> None:
        graph = Graph(graphs, ANN)
        await graph.add({"Bob": "person"}, [NewRelation("Bob", "lives_in", "Oslo")])
        await graph.add({}, [NewRelation("ACME", "employs", "Robert"), NewRelation("x", "is", "y")])
        await graph.merge("Robert", "Bob")
        await graph.merge("robert", "BOB")  # merged already
        expected = [("Robert", "lives_in", "Oslo"), ("ACME", "employs", "Robert")]
        assert sorted(await relations_around(graphs, "bob")) == sorted(expected)
        (robert,) = await graph.entities(["bob"])
        assert robert.aliases == ("Bob", "Robert")
        assert len(await graph.page(limit=10)) == 5

    async def test_relation_ends_those_that_it_replaces(self, graphs: GraphDB) -> None:
        graph = Graph(graphs, ANN)
        year = {n: datetime(n, 1, 1, tzinfo=UTC) for n in range(2019, 2027)}
        homes = ("lives_in",)

        async def move(to: str, when: int) -> None:
            relation = NewRelation("Ann", "lives_in", to, (), year[when], replaces=homes)
            await graph.add({}, [relation])

        await graph.add(
            {}, [NewRelation("Ann", "knows", "Ben"), NewRelation("Ben", "lives_in", "X")]
        )
        await move("Rome", 2020)
        await move("Oslo", 2022)
        await move("Oslo", 2023)  # said again
        await move("Rome", 2025)

        homes_of = partial(relations_around, graphs, "Ann")
        assert await homes_of() == [("Ann", "knows", "Ben"), ("Ann", "lives_in", "Rome")]
        for when, home in ((2021, "Rome"), (2024, "Oslo"), (2026, "Rome")):
            assert await homes_of(as_of=year[when]) == [("Ann", "lives_in", home)]
        assert await relations_around(graphs, "X") == [("Ben", "lives_in", "X")]

    async def test_repeated_relation_keeps_all_its_messages(self, graphs: GraphDB) -> None:
        graph = Graph(graphs, ANN)
        for message in ("m1", "m2", "m1"):
            await graph.add({}, [NewRelation("Ann", "knows", "Ben", (message,))])
        (ann,) = await graph.entities(["ann"])
        ((_, _, relation),) = await graph.around([ann.entity_id])
        assert relation.source_message_ids == ("m1", "m2")

    async def test_ends_are_revised_and_relations_erased(self, graphs: GraphDB) -> None:
        graph = Graph(graphs, ANN)
        end = datetime(2024, 1, 1, tzinfo=UTC)
        new = [NewRelation("Ann", "knows", "Ben"), NewRelation("Ann", "knows", "Cleo")]
        knows_ben, knows_cleo = await graph.add({}, new)
        (ann,) = await graph.entities(["ann"])

        await graph.revise({knows_ben: end})
        assert await relations_around(graphs, "Ann") == [("Ann", "knows", "Cleo")]
        every = await graph.all_around([ann.entity_id])
        assert [(r.destination, r.valid_to) for _, _, r in every] == [("Ben", end), ("Cleo", None)]
        await graph.revise({knows_ben: None})
        assert len(await relations_around(graphs, "Ann")) == 2

        await graph.erase([knows_ben])
        assert to_triples(await graph.all_around([ann.entity_id])) == [("Ann", "knows", "Cleo")]
        assert await graph.entities(["Ben"]) == []
        await graph.erase([knows_cleo])
        assert await graph.page(limit=9) == []

    async def test_scopes_filter_by_agent_and_pages_continue_after_an_id(
        self, graphs: GraphDB
    ) -> None:
        for agent in ("a1", "a2"):
            graph = Graph(graphs, Scope("ann", agent))
            await graph.add({}, [NewRelation("Ann", "knows", f"friend of {agent}")])
        assert await relations_around(graphs, "Ann", Scope("ann", "a1")) == [
            ("Ann", "knows", "friend of a1")
        ]
        assert len(await relations_around(graphs, "Ann")) == 2
        assert len(await relations_around(graphs, "Ann", limit=1)) == 1
        whole = Graph(graphs, ANN)
        first = await whole.page(limit=3)
        second = await whole.page(limit=3, after=first[-1].entity_id)
        assert (len(first), len(second)) == (3, 1)
        assert len(await Graph(graphs, Scope("ann", "a2")).page(limit=10)) == 2

    async def test_invalid_entity_name_is_refused(self, graphs: GraphDB) -> None:
        graph = Graph(graphs, ANN)

        async def refuse(name: str) -> None:
            with pytest.raises(InvalidArgument):
                await graph.add({}, [NewRelation(name, "is", "x")])
            with pytest.raises(InvalidArgument):
                await graph.merge("x", name)
            assert await graph.page(limit=10) == []

        await check_each_async(["", "  ", "x" * 300, "a\0b"], refuse)

    async def test_query_syntax_in_names_is_stored_as_text(self, graphs: GraphDB) -> None:
        name = "x'}) DETACH DELETE (n) //"
        graph = Graph(graphs, ANN)
        await graph.add({name: "DROP TABLE Entity"}, [NewRelation(name, "is' OR 1=1", '"$x')])
        assert await relations_around(graphs, name) == [(name, "is' OR 1=1", '"$x')]
        assert await graph.entities(["' OR 1=1"]) == []


def files_with(word: str, folder: Path) -> list[Path]:
    """Return the databases that contain a word."""
    return [path for path in folder.rglob("*.db") if word.encode() in path.read_bytes()]


def make_memory(location: str, engine: str) -> AsyncMemory:
    return AsyncMemory(
        settings=Settings(db=location, embedder="hash", snapshots=False),
        extractor=WordExtractor(),
        graph_db=documented_graphs() if engine == "documented" else None,
    )


class TestMemoryWithGraph:
    async def test_export_import_and_erasure(
        self, databases: Databases, engine: str, tmp_path: Path
    ) -> None:
        canary = "zqcanaryzq"
        first, second = databases.fresh(), databases.fresh()
        async with make_memory(first, engine) as memory:
            await memory.add(f"Ann works_at {canary} {canary} based_in Oslo", "ann", session_id="s")
            await (await memory._open()).library.graph(ANN).merge(canary, f"{canary} Ltd")
            assert len((await memory.graph("Ann", "ann", depth=2))["relations"]) == 2
            lines = [line async for line in memory.export("ann")]
            tables = [line.partition('"table": "')[2].partition('"')[0] for line in lines]
            assert {"entities", "aliases", "relations"} <= set(tables)

            async with make_memory(second, "tables") as other:  # to which every graph can move
                counts = await other.import_(lines, "ann")
                assert (counts["entities"], counts["aliases"], counts["relations"]) == (3, 4, 2)
                assert await other.graph("Ann", "ann", depth=2) == await memory.graph(
                    "Ann", "ann", depth=2
                )
                assert await other.import_(lines, "ann") == counts
                assert len((await other.graph(user_id="ann"))["entities"]) == 3

            await memory.erase("ann")
            assert (await memory.graph(user_id="ann"))["entities"] == []
        if engine != "postgresql":  # only the other database
            assert len(files_with(canary, tmp_path)) == 1

    async def test_erase_session_keeps_relations_of_other_sessions(
        self, location: str, engine: str, tmp_path: Path
    ) -> None:
        async with make_memory(location, engine) as memory:
            await memory.add("Ann works_at zqcanaryzq", "ann", session_id="s1")
            await memory.add("Ann lives_in Oslo", "ann", session_id="s2")
            library = (await memory._open()).library
            await library.erase_session("ann", "s1")
            relations = (await memory.graph("Ann", "ann"))["relations"]
            assert [(r["relationship"], r["destination"]) for r in relations] == [
                ("lives_in", "Oslo")
            ]
            names = {e["name"] for e in (await memory.graph(user_id="ann"))["entities"]}
            assert names == {"Ann", "Oslo"}
        assert files_with("zqcanaryzq", tmp_path) == []


async def test_erasures_remove_the_bytes_of_a_graph_outside_the_store(tmp_path: Path) -> None:
    graphs, settings = documented_graphs(), Settings(db=str(tmp_path / "a.db"), embedder="hash")
    compacted: list[str] = []

    async def compact(user_id: str) -> None:
        compacted.append(user_id)

    graphs.compact = compact
    async with AsyncMemory(settings=settings, graph_db=graphs, extractor=WordExtractor()) as memory:
        await memory.add("Ann works_at Acme", "ann", session_id="s1")
        (stored,) = (await memory.add("drink: tea.", "ann", session_id="s2"))["results"]
        assert compacted == []
        await memory.purge(stored["id"])
        assert compacted == ["ann"]
        await (await memory._open()).library.erase_session("ann", "s1")
        assert compacted == ["ann", "ann"]


async def test_invalid_graph_db_setting_is_refused(tmp_path: Path) -> None:
    for value, message in {"nowhere": "no graph db", "ladybug:graphs": "was removed"}.items():
        settings = Settings(db=str(tmp_path / "a.db"), embedder="hash", graph_db=value)
        with pytest.raises(InvalidArgument, match=message):
            await Library.open(settings)
    # A file of version 0.2 is not upgraded: its graph must still be exported with that version.
    assert not (tmp_path / "a.db").exists()
