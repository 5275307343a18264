"""Cursors: bound to their user and query, and pages form a consistent snapshot."""

import base64
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from memrecall.scope import Scope
from memrecall.types import NewMemory, Origin

from .http_service import (
    HttpService,
    check_error,
    make_message,
    message_ids,
    open_library,
    serve_in_process,
    timestamp,
    write_messages,
)

RANGE = "/v1/users/ann/messages"
SEARCH = "/v1/messages/lexical_search"


async def search(client: httpx.AsyncClient, **fields: Any) -> httpx.Response:
    return await client.post(SEARCH, json={"user_id": "ann", "query_text": "tea", **fields})


async def first_cursors(client: httpx.AsyncClient) -> tuple[str, str]:
    """Return the next cursors of a read and of a search of Ann's messages."""
    page = await client.get(RANGE, params={"page_size": 2})
    results = await search(client, page_size=2)
    return page.json()["next_cursor"], results.json()["next_cursor"]


async def test_cursor_is_bound_to_user_and_query(sqlite_service: HttpService) -> None:
    client = await sqlite_service.client_with_key("ann", "ben")
    for user in ("ann", "ben"):
        await write_messages(client, user, *(make_message(n, "tea") for n in range(6)))
    range_cursor, search_cursor = await first_cursors(client)
    for path, query in [
        ("/v1/users/ben/messages", {"cursor": range_cursor}),
        (RANGE, {"cursor": range_cursor, "role": "user"}),
        (RANGE, {"cursor": range_cursor, "since": timestamp(0)}),
        (RANGE, {"cursor": range_cursor, "session_id": "default"}),
        (RANGE, {"cursor": range_cursor, "order": "asc"}),
        (RANGE, {"cursor": search_cursor}),
    ]:
        check_error(await client.get(path, params=query), 400, "INVALID_ARGUMENT")
    foreign_requests: list[dict[str, Any]] = [
        {"cursor": search_cursor, "user_id": "ben"},
        {"cursor": search_cursor, "query_text": "tea cup"},
        {"cursor": search_cursor, "filter": {"role": "user"}},
        {"cursor": search_cursor, "filter": {"time_range": {"since": timestamp(0)}}},
        {"cursor": range_cursor},
    ]
    for fields in foreign_requests:
        check_error(await search(client, **fields), 400, "INVALID_ARGUMENT")
    # A key of another agent sees other messages.
    helper = await sqlite_service.client_with_key("ann", agent_id="default")
    check_error(await helper.get(RANGE, params={"cursor": range_cursor}), 400, "INVALID_ARGUMENT")
    check_error(await search(helper, cursor=search_cursor), 400, "INVALID_ARGUMENT")


async def test_forged_cursor_is_refused(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", *(make_message(n, "tea") for n in range(6)))
    for cursor in await first_cursors(ann):
        data = bytearray(base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4)))
        forged_cursors = ["x", "!", cursor[:-4], f"{cursor}AAAA", "é", "A" * 500]
        for position in (0, 15, 16, len(data) - 2):
            changed = bytearray(data)
            changed[position] ^= 1
            forged_cursors.append(base64.urlsafe_b64encode(bytes(changed)).decode().rstrip("="))
        for text in forged_cursors:
            check_error(await ann.get(RANGE, params={"cursor": text}), 400, "INVALID_ARGUMENT")
            check_error(await search(ann, cursor=text), 400, "INVALID_ARGUMENT")


async def test_page_size_may_change_between_pages(sqlite_service: HttpService) -> None:
    ann = await sqlite_service.client_with_key("ann")
    await write_messages(ann, "ann", *(make_message(n, "tea") for n in range(6)))
    range_cursor, search_cursor = await first_cursors(ann)
    expected = ["m003", "m002", "m001", "m000"]
    assert (
        message_ids(await ann.get(RANGE, params={"cursor": range_cursor, "page_size": 9}))
        == expected
    )
    search_page = await search(ann, cursor=search_cursor, page_size=9, return_fields=["role"])
    assert message_ids(search_page) == expected


async def test_cursor_works_in_another_process(location: str, tmp_path: Path) -> None:
    async with open_library(location, tmp_path) as library, serve_in_process(library) as service:
        key = await service.create_key("ann")
        ann = service.client(key)
        await write_messages(
            ann, "ann", *(make_message(n, f"tea {'tea ' * (n % 4)}") for n in range(30))
        )
        whole = message_ids(await search(ann, page_size=200))
        range_cursor, search_cursor = await first_cursors(ann)
    async with (
        open_library(location, tmp_path / "elsewhere") as library,
        serve_in_process(library) as service,
    ):
        ann = service.client(key)
        later_messages = [
            make_message(n, "tea tea tea tea tea", message_id=f"late{n}") for n in range(-20, 20)
        ]
        await write_messages(ann, "ann", *later_messages)
        assert message_ids(await search(ann, cursor=search_cursor, page_size=200)) == whole[2:]
        remaining = message_ids(
            await ann.get(RANGE, params={"cursor": range_cursor, "page_size": 200})
        )
        assert [key for key in remaining if key.startswith("m")] == [
            f"m{n:03}" for n in reversed(range(28))
        ]


async def test_erased_messages_are_missing_from_later_pages(service: HttpService) -> None:
    ann = await service.client_with_key("ann")
    messages = [
        make_message(n, f"tea {'tea ' * (n % 5)}", session_id="gone" if n % 3 == 0 else "kept")
        for n in range(40)
    ]
    await write_messages(ann, "ann", *messages)
    before = message_ids(await search(ann, page_size=200))
    first = (await search(ann, page_size=7)).json()

    await service.library.erase_session("ann", "gone")
    await write_messages(
        ann, "ann", *(make_message(n, "tea", message_id=f"late{n}") for n in range(50))
    )

    remaining = message_ids(await search(ann, page_size=200, cursor=first["next_cursor"]))
    assert remaining == [key for key in before[7:] if int(key[1:]) % 3]


async def test_memories_do_not_shift_message_pages(service: HttpService) -> None:
    ann = await service.client_with_key("ann")
    await write_messages(
        ann, "ann", *(make_message(n, f"tea {'cup ' * (n % 7)}") for n in range(20))
    )
    text = "tea OR cup"
    whole = message_ids(await search(ann, query_text=text, page_size=200))
    first = (await search(ann, query_text=text, page_size=3)).json()
    notes = [NewMemory(content="tea tea", memory_key=f"k{n}") for n in range(5)]
    await service.library.add_memories(Scope("ann"), notes, origin=Origin.USER, actor="test")
    service.library.cache.forget("ann")  # as after a restart
    second = await search(ann, query_text=text, page_size=200, cursor=first["next_cursor"])
    assert message_ids(second) == whole[3:]
    assert message_ids(await search(ann, query_text=text, page_size=200)) == whole


MICROSECOND = 1 / 60e6  # in minutes

# Few values, so that times and scores are often equal.
MESSAGES = st.lists(
    st.tuples(
        st.sampled_from([0, 1, 2, 3, 3 + MICROSECOND, 3 + 2 * MICROSECOND, 4]),
        st.sampled_from(["tea", "tea tea", "tea cup", "cup", "茶", "喝茶 tea"]),
        st.sampled_from(["user", "assistant"]),
    ),
    min_size=1,
    max_size=12,
)
LATER_MESSAGES = st.lists(MESSAGES, max_size=4)
FILTERS = st.fixed_dictionaries(
    {},
    optional={
        "role": st.sampled_from(["user", "assistant"]),
        "time_range": st.fixed_dictionaries(
            {},
            optional={
                "since": st.sampled_from([timestamp(1), timestamp(2)]),
                "until": st.just(timestamp(4)),
            },
        ),
    },
)
RANGE_FILTERS = st.fixed_dictionaries(
    {}, optional={"order": st.just("asc"), "session_id": st.just("s1")}
)
QUERIES = st.sampled_from(["tea", "tea OR cup", "茶 OR cup", "NOT cup"])


class PagedReader:
    """Writes and reads the messages of one example, which has its own user."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self.client = client
        self.examples = 0
        self.written = 0

    @property
    def user(self) -> str:
        return f"u{self.examples}"

    async def write(self, messages: list[tuple[Any, str, str]]) -> None:
        batch = []
        for minute, content, role in messages:
            self.written += 1
            # The order of the ids differs from the order of writing.
            name = f"{self.written * 7919 % 1000:03}-{self.written}"
            session = f"s{self.written % 2}"
            fields = {"message_id": name, "role": role, "session_id": session}
            batch.append(make_message(minute, content, **fields))
        if batch:
            await write_messages(self.client, self.user, *batch)

    async def read(
        self, conditions: dict[str, Any], size: int, cursor: str | None
    ) -> httpx.Response:
        times = conditions.get("time_range", {})
        names = ("role", "order", "session_id")
        others = {name: conditions.get(name) for name in names}
        query = {"page_size": size, "cursor": cursor, **others, **times}
        parameters = {name: value for name, value in query.items() if value is not None}
        return await self.client.get(f"/v1/users/{self.user}/messages", params=parameters)

    async def search(
        self, text: str, conditions: dict[str, Any], size: int, cursor: str | None
    ) -> httpx.Response:
        body = {"user_id": self.user, "query_text": text, "filter": conditions, "page_size": size}
        return await self.client.post(SEARCH, json={**body, "cursor": cursor})


@pytest.fixture
async def reader(service: HttpService) -> PagedReader:
    return PagedReader(await service.client_with_key())


ReadPage = Callable[[int, str | None], Awaitable[httpx.Response]]


async def read_all_pages(
    reader: PagedReader, read_page: ReadPage, size: int, later: list[Any]
) -> tuple[list[str], list[str]]:
    """Return the ids of one large page, and of small pages read between later writes."""
    whole = message_ids(await read_page(200, None))
    pages: list[str] = []
    cursor = None
    writes = iter(later)
    while True:
        answer = await read_page(size, cursor)
        page = message_ids(answer)
        assert len(page) <= size
        pages += page
        cursor = answer.json()["next_cursor"]
        if cursor is None:
            return whole, pages
        await reader.write(next(writes, []))


SIZES = st.integers(1, 5)
examples = settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])


@examples
@given(first=MESSAGES, later=LATER_MESSAGES, conditions=FILTERS, of_range=RANGE_FILTERS, size=SIZES)
async def test_range_pages_form_a_consistent_snapshot(
    reader: PagedReader,
    first: Any,
    later: Any,
    conditions: dict[str, Any],
    of_range: dict[str, Any],
    size: int,
) -> None:
    reader.examples += 1
    await reader.write(first)
    conditions = {**conditions, **of_range}
    items = (await reader.read(conditions, 200, None)).json()["items"]
    in_order = sorted(items, key=lambda item: item["message_id"])
    in_order.sort(
        key=lambda item: datetime.fromisoformat(item["ts"]), reverse="order" not in of_range
    )
    assert items == in_order
    assert {item["session_id"] for item in items} <= {of_range.get("session_id", "s0"), "s1"}

    whole, pages = await read_all_pages(
        reader, lambda size, cursor: reader.read(conditions, size, cursor), size, later
    )

    assert len(set(pages)) == len(pages)
    initial = set(whole)
    assert [key for key in pages if key in initial] == whole


@examples
@given(first=MESSAGES, later=LATER_MESSAGES, conditions=FILTERS, size=SIZES, text=QUERIES)
async def test_search_pages_form_a_consistent_snapshot(
    reader: PagedReader, first: Any, later: Any, conditions: dict[str, Any], size: int, text: str
) -> None:
    reader.examples += 1
    await reader.write(first)

    whole, pages = await read_all_pages(
        reader, lambda size, cursor: reader.search(text, conditions, size, cursor), size, later
    )

    assert pages == whole  # later writes change nothing
