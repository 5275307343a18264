"""Authentication: keys, their permissions, and the keyless local service."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from memrecall.agent.driver import stream_recall
from memrecall.memory import Library
from memrecall.server.http import chat, recall, users
from memrecall.store import Grant

from .http_service import (
    OPERATOR,
    HttpService,
    check_error,
    make_message,
    message_ids,
    serve_in_process,
    serve_on_socket,
    write_messages,
)

PATH = "/v1/users/ann/messages"


class TestKeys:
    async def test_invalid_key_is_refused(self, service: HttpService) -> None:
        key = await service.create_key("ann")
        invalid_headers = ["", "Bearer", f"Basic {key}", f"Bearer {key}x", key, "Bearer mr_a_b"]
        for header in invalid_headers:
            answer = await service.client(Authorization=header).get(PATH)
            check_error(answer, 401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"].startswith("Bearer")
            is_explained = "the header must be: Authorization: Bearer KEY" in answer.text
            assert is_explained is not header.startswith("Bearer ")
        check_error(await service.client().get(PATH), 401, "UNAUTHENTICATED")
        check_error(await service.client().get("/v1/nothing/here"), 401, "UNAUTHENTICATED")
        await write_messages(service.client(Authorization=f"bearer  {key}"), "ann", make_message(1))

    @pytest.mark.concurrent
    @pytest.mark.parametrize("kind", ["recall", "chat", "export"])
    async def test_a_revoked_key_ends_its_open_streams(
        self, library: Library, monkeypatch: pytest.MonkeyPatch, kind: str
    ) -> None:
        """The client has read the first part when the key is revoked, and gets no other."""
        is_revoked = asyncio.Event()

        def pausing(items: Any) -> Any:
            async def pause(*args: Any, **options: Any) -> AsyncIterator[Any]:
                async for item in items(*args, **options):
                    yield item
                    await is_revoked.wait()

            return pause

        start_turn = chat.ChatHandler._start_turn

        async def start(handler: Any, of_chat: Any) -> Any:
            events = await start_turn(handler, of_chat)
            return pausing(lambda: events)()

        monkeypatch.setattr(chat.ChatHandler, "_start_turn", start)
        monkeypatch.setattr(recall, "stream_recall", pausing(stream_recall))
        monkeypatch.setattr(users, "_CHUNK_BYTES", 1)
        monkeypatch.setattr(users, "_join_lines", pausing(users._join_lines))
        requests: dict[str, tuple[str, dict[str, Any]]] = {
            "recall": ("POST", {"json": {"query": "dentist"}}),
            "chat": ("POST", {"json": {"message": "When is the dentist?"}}),
            "export": ("GET", {}),
        }
        async with serve_on_socket(library) as service:
            key, secret = await library.store.keys.create(Grant(frozenset({"ann"})))
            client = service.client(secret, Accept="text/event-stream, application/x-ndjson")
            await write_messages(client, "ann", make_message(1, "The dentist is on Friday"))
            method, options = requests[kind]
            sent = client.stream(method, f"/v1/users/ann/{kind}", **options)
            async with sent as answer:
                parts = answer.aiter_text()
                assert await anext(parts)
                await library.store.keys.revoke(key.key_id)
                is_revoked.set()
                if kind == "export":
                    with pytest.raises(httpx.RemoteProtocolError):
                        [part async for part in parts]
                    return
                rest = "".join([part async for part in parts])
        assert rest.count("event: ") == rest.count("event: error") == 1
        assert "UNAUTHENTICATED" in rest
        assert "Friday" not in rest

    async def test_revoked_key_is_refused_at_once(self, service: HttpService) -> None:
        key, text = await service.library.store.keys.create(Grant(frozenset({"ann"})))
        client = service.client(text)
        await write_messages(client, "ann", make_message(1))
        await service.library.store.keys.revoke(key.key_id)
        check_error(await client.get(PATH), 401, "UNAUTHENTICATED")

    async def test_foreign_and_unknown_users_are_indistinguishable(
        self, service: HttpService
    ) -> None:
        ann, ben = await service.client_with_key("ann"), await service.client_with_key("ben")
        await write_messages(ann, "ann", make_message(1))
        await write_messages(ben, "ben", make_message(1), make_message(2))

        def describe(answer: httpx.Response) -> tuple[int, bytes, list[str]]:
            header_names = [name for name in answer.headers if name not in ("date", "x-request-id")]
            return answer.status_code, answer.content, header_names

        missing = await ann.get(f"{PATH}/m999/neighbors")
        assert missing.status_code == 404
        for path in [
            "/v1/users/ben/messages",
            "/v1/users/nobody/messages",
            "/v1/users/ben/messages/m001/neighbors",
            "/v1/users/nobody/messages/m001/neighbors",
            f"{PATH}/m002/neighbors",
        ]:
            assert describe(await ann.get(path)) == describe(missing), path
        for user in ("ben", "nobody"):
            query = {"user_id": user, "query_text": "message"}
            for name in ("lexical_search", "semantic_search"):
                answer = await ann.post(f"/v1/messages/{name}", json=query)
                assert describe(answer) == describe(missing)
            recall = await ann.post(f"/v1/users/{user}/recall", json={"query": "message"})
            assert describe(recall) == describe(missing)
            body = {"messages": [make_message(5)]}
            assert describe(await ann.post(f"/v1/users/{user}/messages", json=body)) == describe(
                missing
            )
        assert (await service.library.store.count("nobody"))["messages"] == 0

    async def test_header_names_one_of_the_users_of_a_key(self, service: HttpService) -> None:
        shared = await service.client_with_key("ann", "张 三", "100%")
        for user, quoted in (
            ("ann", "ann"),
            ("张 三", "%E5%BC%A0%20%E4%B8%89"),
            ("100%", "100%25"),
        ):
            shared.headers["X-Memrecall-User"] = quoted
            await write_messages(shared, quoted, make_message(1, "tea"))
            question = {"user_id": user, "query_text": "tea"}
            answer = await shared.post("/v1/messages/lexical_search", json=question)
            assert message_ids(answer) == ["m001"]
            stored = await shared.post("/v1/memories/search", json={"query": "tea"})
            assert stored.status_code == 200, stored.text  # the header is enough to name the user
        raw = {b"X-Memrecall-User": "张 三".encode()}
        assert (await shared.get("/v1/memories", headers=raw)).status_code == 200

    async def test_header_of_another_user_is_refused(self, service: HttpService) -> None:
        shared = await service.client_with_key("ann", "ben")
        question = {"user_id": "ann", "query_text": "message"}
        everybody = await service.client_with_key()
        for client, user, status, code in (
            (shared, "eve", 403, "PERMISSION_DENIED"),  # not of this key
            (shared, "ben", 400, "INVALID_ARGUMENT"),  # not of this request
            (everybody, "ben", 400, "INVALID_ARGUMENT"),
            (everybody, "", 400, "INVALID_ARGUMENT"),
            (everybody, "%FF", 400, "INVALID_ARGUMENT"),
            (everybody, "x" * 65, 400, "INVALID_ARGUMENT"),
        ):
            headers = {"X-Memrecall-User": user}
            search = "/v1/messages/lexical_search"
            body = {"messages": [make_message(1)]}
            answers = [
                await client.get(PATH, headers=headers),
                await client.post(PATH, json=body, headers=headers),
                await client.post(search, json=question, headers=headers),
                await client.get("/v1/memories", params={"user_id": "ann"}, headers=headers),
            ]
            for answer in answers:
                assert "X-Memrecall-User" in check_error(answer, status, code)["message"]
        assert (await service.library.store.count("ann"))["messages"] == 0

    async def test_key_of_erased_user_is_refused(self, service: HttpService) -> None:
        ann, shared = (
            await service.client_with_key("ann"),
            await service.client_with_key("ann", "ben"),
        )
        await write_messages(ann, "ann", make_message(1))
        await write_messages(shared, "ben", make_message(1))
        await service.library.erase_user("ann")
        check_error(await ann.get(PATH), 401, "UNAUTHENTICATED")
        check_error(await shared.get(PATH), 404, "NOT_FOUND")
        assert message_ids(await shared.get("/v1/users/ben/messages")) == ["m001"]

    async def test_metrics_require_operator_key(self, sqlite_service: HttpService) -> None:
        all_users = await sqlite_service.client_with_key()
        check_error(await all_users.get("/metrics"), 403, "PERMISSION_DENIED")
        key = (
            await sqlite_service.library.store.keys.create(Grant(frozenset(), permissions=OPERATOR))
        )[1]
        operator = sqlite_service.client(key)
        assert (await operator.get("/metrics")).status_code == 200
        check_error(await operator.get(PATH), 404, "NOT_FOUND")

    async def test_public_endpoints_need_no_key(self, service: HttpService) -> None:
        await service.create_key("ann")
        client = service.client()
        assert set((await client.get("/healthz")).json()) == {"status", "version"}
        for path in ("/openapi.json", "/docs"):
            assert (await client.get(path)).status_code == 200


class TestKeylessService:
    async def test_local_callers_need_no_key_before_first_key(self, service: HttpService) -> None:
        client = service.client()
        await write_messages(client, "ann", make_message(1))
        assert message_ids(await client.get(PATH)) == ["m001"]
        assert (await client.get("/metrics")).status_code == 200

        key = await service.create_key("ann")

        check_error(await client.get(PATH), 401, "UNAUTHENTICATED")
        assert message_ids(await service.client(key).get(PATH)) == ["m001"]

    async def test_revoking_the_last_key_does_not_reopen_service(
        self, service: HttpService
    ) -> None:
        key, _ = await service.library.store.keys.create(Grant(None))
        await service.library.store.keys.revoke(key.key_id)
        check_error(await service.client().get(PATH), 401, "UNAUTHENTICATED")

    async def test_unknown_key_is_refused_by_open_service(
        self, sqlite_service: HttpService
    ) -> None:
        check_error(
            await sqlite_service.client("mr_0011223344556677_x").get(PATH), 401, "UNAUTHENTICATED"
        )

    async def test_open_service_refuses_non_local_requests(
        self, sqlite_service: HttpService
    ) -> None:
        await write_messages(sqlite_service.client(), "ann", make_message(1))
        port = sqlite_service.url.rpartition(":")[2]
        non_local = [
            {"Host": "evil.example"},
            {"Host": f"evil.example:{port}"},
            {"Host": "127.0.0.1.evil.example"},
            {"Host": "192.168.1.7"},
            {"Host": "[::1"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},  # images of web pages are requested without an Origin
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": f"http://localhost:{port}"},  # another port than that of the request
            {"X-Forwarded-For": "203.0.113.5"},
            {"Forwarded": "for=203.0.113.5"},
        ]
        for headers in non_local:
            answer = await sqlite_service.client(**headers).get(PATH)
            check_error(answer, 403, "PERMISSION_DENIED")
            assert "access-control-allow-origin" not in answer.headers
        for headers in (
            {"Host": f"localhost:{port}"},
            {"Host": "[::1]"},
            {"Origin": sqlite_service.url},
        ):
            assert message_ids(await sqlite_service.client(**headers).get(PATH)) == ["m001"], (
                headers
            )

    async def test_form_of_web_page_cannot_write(self, sqlite_service: HttpService) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            content = b'{"messages": [{"role": "user", "content": "x"}]}'
            headers = {"Content-Type": kind} if kind else {}
            answer = await sqlite_service.client().post(PATH, content=content, headers=headers)
            check_error(answer, 415, "INVALID_ARGUMENT")

    async def test_public_server_is_never_keyless(self, sqlite_library: Library) -> None:
        async with serve_in_process(sqlite_library, allow_keyless=False) as service:
            check_error(await service.client().get(PATH), 401, "UNAUTHENTICATED")


class TestCors:
    async def test_cors_admits_only_allowed_origins(self, sqlite_library: Library) -> None:
        from dataclasses import replace

        page = "https://app.example"
        sqlite_library.settings = replace(sqlite_library.settings, cors_origins=f"{page}, http://b")
        async with serve_in_process(sqlite_library) as service:
            preflight = {"Access-Control-Request-Method": "POST"}
            allowed = await service.client(Origin=page, **preflight).options(PATH)
            assert allowed.headers["access-control-allow-origin"] == page
            denied = await service.client(Origin="https://evil.example", **preflight).options(PATH)
            assert "access-control-allow-origin" not in denied.headers
            await write_messages(service.client(Origin=page), "ann", make_message(1))
            key = await service.create_key("ann")
            answer = await service.client(key, Origin=page).get(PATH)
            assert answer.headers["access-control-allow-origin"] == page

    async def test_cors_is_disabled_by_default(self, sqlite_service: HttpService) -> None:
        key = await sqlite_service.create_key("ann")
        preflight = {"Access-Control-Request-Method": "POST", "Origin": "https://app.example"}
        answer = await sqlite_service.client(key, **preflight).options(PATH)
        check_error(answer, 405, "INVALID_ARGUMENT")
        assert "access-control-allow-origin" not in answer.headers
