"""The knowledge base of an agent: entries, search, replacement and vectors."""

import json
from pathlib import Path
from typing import Any

import pytest

from memrecall.errors import Disabled, EmbedderFailed, InvalidArgument, StorageBusy
from memrecall.library.knowledge import KnowledgeBase
from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.settings import Settings
from memrecall.store import NewKnowledge, Store
from memrecall.store.vectors import KnowledgeVectors
from tests.cases import check_each_async

from .conftest import make_settings

FIXTURES = Path(__file__).parents[2] / "fixtures" / "knowledge"
KNOWLEDGE_PERMISSIONS = frozenset({Permission.KNOWLEDGE})
DOCTOR, COOK = (
    Scope("ann", "doctor", permissions=KNOWLEDGE_PERMISSIONS),
    Scope("ann", "cook", permissions=KNOWLEDGE_PERMISSIONS),
)

ENTRIES = (
    NewKnowledge(
        "Docker 是一个开源的应用容器引擎，"
        "让开发者可以打包他们的应用以及依赖包到一个可移植的容器中。",
        "Docker 容器化技术",
        ("docker", "container", "devops"),
    ),
    NewKnowledge(
        "在 Python 中，使用 `requests` 库可以方便地发送 HTTP 请求。", "Python HTTP 请求库"
    ),
    NewKnowledge(
        "FastAPI 是一个现代、快速（高性能）的 Web 框架，用于构建 API。",
        "Python Web 框架",
        ("python", "fastapi", "web"),
    ),
    NewKnowledge("Employees get 25 days of paid leave a year.", "Vacation policy"),
    NewKnowledge("Adults take 200 to 400 mg, at most 1200 mg a day.", "Ibuprofen dose"),
    NewKnowledge("商品签收后七天内可以无理由退货，运费由买家承担。", "退货政策"),
)


async def search_titles(base: KnowledgeBase, query: str, limit: int = 3) -> list[str]:
    return [entry.summary for entry, _ in await base.search(query, limit)]


async def fill(base: KnowledgeBase) -> list[str]:
    return [await base.add(entry) for entry in ENTRIES]


class TestEntries:
    async def test_entry_gets_a_key_and_keeps_its_fields(self, library: Library) -> None:
        base = KnowledgeBase(library, DOCTOR)
        key = await base.add(NewKnowledge("两片", "剂量 dose", ("药", "dose"), {"a": [1]}))

        entry = await base.get(key)
        assert key.startswith("kb-")
        assert (entry.content, entry.summary) == ("两片", "剂量 dose")
        assert (entry.tags, entry.metadata) == (["药", "dose"], {"a": [1]})
        assert entry.created_at == entry.updated_at

    async def test_keys_sort_by_time(self, library: Library) -> None:
        base = KnowledgeBase(library, DOCTOR)
        keys = await fill(base)

        assert keys == sorted(set(keys))
        assert [entry.knowledge_key for entry in (await base.snapshot()).entries] == keys
        assert [e.knowledge_key for e in await base.page(keys[1], 2)] == keys[2:4]

    async def test_invalid_entry_is_refused(self, library: Library) -> None:
        cases: list[NewKnowledge] = [
            NewKnowledge(" \n"),
            NewKnowledge("a\0b"),
            NewKnowledge("a", "\ud800"),
            NewKnowledge("a", tags=(" ",)),
            NewKnowledge("a", tags=("x" * 256,)),
            NewKnowledge("a", tags=tuple(map(str, range(101)))),
            NewKnowledge("a", key="x" * 65),
        ]
        base = KnowledgeBase(library, DOCTOR)

        async def check(entry: NewKnowledge) -> None:
            with pytest.raises(InvalidArgument):
                await base.add(entry)
            assert (await base.snapshot()).entries == []

        await check_each_async(cases, check)

    async def test_write_requires_permission(self, library: Library) -> None:
        base = KnowledgeBase(library, Scope("ann", "doctor"))
        for operation in (
            base.add(NewKnowledge("x")),
            base.delete("x"),
            library.store.knowledge(Scope("ann", "doctor")).replace([NewKnowledge("x")], "r1"),
        ):
            with pytest.raises(Disabled):
                await operation


class TestSearch:
    async def test_search_by_words_tags_and_chinese(self, library: Library) -> None:
        base = KnowledgeBase(library, DOCTOR)
        await fill(base)

        assert (await search_titles(base, "python http"))[0] == "Python HTTP 请求库"
        assert await search_titles(base, "python http", 1) == ["Python HTTP 请求库"]
        assert await search_titles(base, "devops") == ["Docker 容器化技术"]
        assert await search_titles(base, "退货") == ["退货政策"]
        assert await search_titles(base, "容器引擎") == ["Docker 容器化技术"]

    async def test_search_refuses_limit_out_of_range(self, library: Library) -> None:
        for limit in (0, -1, 201):
            with pytest.raises(InvalidArgument):
                await KnowledgeBase(library, DOCTOR).search("x", limit)

    async def test_edit_reindexes_entry_at_once(self, library: Library, location: str) -> None:
        base = KnowledgeBase(library, DOCTOR)
        key = await base.add(NewKnowledge("umbrella", "Rain"))
        assert await search_titles(base, "umbrella") == ["Rain"]
        async with await Library.open(make_settings(location)) as other_library:
            other = KnowledgeBase(other_library, DOCTOR)
            await other.add(NewKnowledge("parasol", "Sun", key=key))

        assert await search_titles(base, "parasol") == ["Sun"]
        assert await search_titles(base, "umbrella") == []

    async def test_knowledge_is_isolated_per_agent(self, library: Library) -> None:
        doctor, cook = KnowledgeBase(library, DOCTOR), KnowledgeBase(library, COOK)
        await fill(doctor)

        assert await search_titles(cook, "fastapi") == []
        before = await library.store.knowledge_feed("cook").version()
        await cook.add(NewKnowledge("fastapi is no dish", "Not food"))
        assert before is None
        assert await search_titles(cook, "fastapi") == ["Not food"]
        versions = [
            await library.store.knowledge_feed(agent).version() for agent in ("cook", "doctor")
        ]
        of_cook, of_doctor = (version.version for version in versions if version is not None)
        # Only the agent's own entries count, and their vectors, which a search may write too.
        assert of_cook in (2, 3)
        assert of_doctor > 3

    async def test_user_named_like_the_agent_is_separate(self, library: Library) -> None:
        await fill(KnowledgeBase(library, DOCTOR))
        assert await library.store.feed("doctor").version() is None

    async def test_disabled_agent_cannot_be_searched_and_erased_one_is_empty(
        self, library: Library
    ) -> None:
        base = KnowledgeBase(library, DOCTOR)
        await fill(base)
        await library.store.owners.set_agent_enabled("doctor", False)
        with pytest.raises(Disabled):
            await base.search("python")
        await library.store.owners.set_agent_enabled("doctor", True)
        assert await search_titles(base, "python")
        await library.store.owners.erase_agent("doctor")
        assert await search_titles(base, "python") == []


class TestReplace:
    async def test_replace_all_entries_atomically(self, library: Library) -> None:
        base = KnowledgeBase(library, DOCTOR)
        await fill(base)
        other = KnowledgeBase(library, COOK)
        await other.add(NewKnowledge("salt", "Salt"))
        knowledge = library.store.knowledge(DOCTOR)
        assert not await knowledge.was_restored("r1")

        await knowledge.replace([NewKnowledge("umbrella", "Rain", key="kb-1")], "r1")

        assert [entry.knowledge_key for entry in (await base.snapshot()).entries] == ["kb-1"]
        assert await search_titles(base, "python") == []
        assert await search_titles(base, "umbrella") == ["Rain"]
        assert await search_titles(other, "salt") == ["Salt"]
        assert await knowledge.was_restored("r1")
        await knowledge.close_restore("r1")
        assert not await knowledge.was_restored("r1")

    async def test_refused_replace_changes_nothing(self, library: Library) -> None:
        base = KnowledgeBase(library, DOCTOR)
        keys = await fill(base)
        knowledge = library.store.knowledge(DOCTOR)
        with pytest.raises(InvalidArgument):
            await knowledge.replace([NewKnowledge("a"), NewKnowledge("")], "r1")
        assert [entry.knowledge_key for entry in (await base.snapshot()).entries] == keys
        assert not await knowledge.was_restored("r1")

    async def test_concurrent_write_survives_replace(self, library: Library) -> None:
        base, knowledge = KnowledgeBase(library, DOCTOR), library.store.knowledge(DOCTOR)
        before = await knowledge.snapshot()
        key = await base.add(NewKnowledge("late"))
        with pytest.raises(StorageBusy):
            await knowledge.replace([], "r1", version=before.version)
        assert (await base.get(key)).content == "late"
        now = await knowledge.snapshot()
        assert [entry.knowledge_key for entry in now.entries] == [key]
        await knowledge.replace([], "r1", version=now.version)
        assert (await knowledge.snapshot()).entries == []


class TestVectors:
    async def test_failing_embedder_does_not_block_writes(
        self, library: Library, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        base = KnowledgeBase(library, DOCTOR)

        async def fail(_texts: object) -> object:
            raise EmbedderFailed("down")

        assert library.embedder is not None
        vectors = KnowledgeVectors(library.store.database, library.embedder.model)
        with monkeypatch.context() as broken:
            broken.setattr(library.embedder, "embed", fail)
            await fill(base)
            assert await search_titles(base, "fastapi") == ["Python Web 框架"]
        assert len(await vectors.pending(100)) == len(ENTRIES)

        assert await search_titles(base, "fastapi") == ["Python Web 框架"]
        assert await vectors.pending(100) == []

    async def test_new_embedding_model_recomputes_vectors(self, library: Library) -> None:
        await fill(KnowledgeBase(library, DOCTOR))
        await fill(KnowledgeBase(library, COOK))
        store: Store = library.store
        assert library.embedder is not None
        assert await KnowledgeVectors(store.database, "other").pending(100, "cook") != []

        await library.vectors.settle()
        progress: list[int] = []
        assert (await library.vectors.embed_all(progress.append), progress) == (0, [])

    async def test_stale_vector_is_not_used(self, library: Library) -> None:
        assert library.embedder is not None
        knowledge = library.store.knowledge(DOCTOR)
        await knowledge.replace([NewKnowledge("umbrella", key="kb-1")], "r1")
        vectors = KnowledgeVectors(library.store.database, library.embedder.model)
        pending = await vectors.pending(10)
        await knowledge.replace([NewKnowledge("parasol", key="kb-1")], "r2")

        await vectors.write(pending, await library.embedder.embed(["umbrella"]))

        assert [item.text for item in await vectors.pending(10)] == ["parasol"]


SEMANTIC_QUERIES: list[tuple[str, str | None]] = [
    ("how many holidays do I have", "Vacation policy"),
    ("painkiller maximum per day", "Ibuprofen dose"),
    ("买的东西不想要了怎么办", "退货政策"),
    ("container", "Docker 容器化技术"),
    ("what is the capital of France", None),
    ("法国的首都在哪里", None),
    ("red-cooked pork recipe", None),
    ("红烧肉怎么做", None),
    ("quantum chromodynamics", None),
    ("明天天气如何", None),
    ("zzzz qqqq", None),
]


@pytest.mark.texts
async def test_semantic_search_returns_only_relevant_entries(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "k.db"), embedder="local", cache_dir=str(tmp_path))
    async with await Library.open(settings) as library:
        base = KnowledgeBase(library, DOCTOR)
        await fill(base)

        async def check(case: tuple[str, str | None]) -> None:
            query, best = case
            assert next(iter(await search_titles(base, query)), None) == best

        await check_each_async(SEMANTIC_QUERIES, check)


# The default embedder does not bring these near to their entries.
MISSED = {"how do I feed the starter", "怎么回滚发布", "postmortem deadline"}


def read_lines(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / name).read_text("utf-8").splitlines()]


@pytest.mark.texts
async def test_relevance_holds_on_ten_entries(tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "k.db"), embedder="local", cache_dir=str(tmp_path))
    entries, queries = read_lines("entries.jsonl"), read_lines("queries.jsonl")
    async with await Library.open(settings) as library:
        bases: dict[str, KnowledgeBase] = {}
        for entry in entries:
            scope = Scope("ann", entry["base"], permissions=KNOWLEDGE_PERMISSIONS)
            base = bases.setdefault(entry["base"], KnowledgeBase(library, scope))
            text = (entry["content"], entry["summary"], entry["tags"])
            await base.add(NewKnowledge(*text, key=entry["key"]))
        missed, others = set(), 0

        async def check(query: dict[str, Any]) -> None:
            nonlocal others
            found = [e.knowledge_key for e, _ in await bases[query["base"]].search(query["query"])]
            if not query["expected"]:
                assert found == []
            if not {*query["expected"]}.issubset(found):
                missed.add(query["query"])
            others += len({*found} - {*query["expected"]})

        await check_each_async(queries, check)
    assert missed == MISSED
    assert others <= len(queries) / 4
