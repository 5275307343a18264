"""The same search gives the same list on SQLite and PostgreSQL."""

import asyncio
import json
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from memrecall.memory import Importer, Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from tests.databases import PostgresqlServer
from tests.search.conftest import open_library

CHAT = Path(__file__).parent.parent.parent / "fixtures" / "demo" / "chat.jsonl"
NOW = datetime(2026, 4, 20, tzinfo=UTC)
PLAIN = [
    *("数据库连接池", "db_config_001", "上周三说了什么", "the dog", "in March", "C++", "週末"),
    "(:",
]
QUERY_SYNTAX = ['"连接池" AND NOT 测试', "conf* OR nginx", "NOT (dog OR 数据库)", "port 5432"]


def make_requests() -> list[SearchRequest]:
    plain = [
        SearchRequest(query, mode=mode, limit=20, now=NOW)
        for query in PLAIN
        for mode in ("keyword", "semantic", "hybrid")
    ]
    with_syntax = [
        SearchRequest(query, syntax="query", limit=20, now=NOW) for query in QUERY_SYNTAX
    ]
    return plain + with_syntax


async def search_all(location: str, folder: Path) -> list[Any]:
    async with await open_library(location, folder) as library:
        await Importer(library).run(CHAT)
        await library.vectors.settle()
        return [
            await search_one(library, user, r) for user in ("lin", "maya") for r in make_requests()
        ]


async def search_one(library: Library, user: str, request: SearchRequest) -> Any:
    page = asdict(await library.search(Scope(user), request))
    del page["records"]  # with the times at which they were stored
    page["next_cursor"] = page["next_cursor"] is not None  # signed with the database's own secret
    for hit in page["results"]:
        hit["metadata"].pop("import", None)  # each has an id of its own
    return json.loads(json.dumps(page, default=str))


def test_databases_return_equal_results(
    postgresql_server: PostgresqlServer, tmp_path: Path
) -> None:
    name = postgresql_server.create(migrated=True)
    try:
        postgresql_results = asyncio.run(
            search_all(postgresql_server.location(name), tmp_path / "pg")
        )
    finally:
        postgresql_server.drop([name])
    sqlite_results = asyncio.run(search_all(str(tmp_path / "chat.db"), tmp_path / "sqlite"))
    assert sqlite_results == postgresql_results
    assert sum(bool(page["results"]) for page in sqlite_results) > 30
