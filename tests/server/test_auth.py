"""Who may ask for what: keys, and the open door on one's own machine."""

from datetime import UTC, datetime, timedelta

import httpx
import pytest

from memrecall.memory import Library
from memrecall.scope import Permission, Scope
from memrecall.store import Grant
from memrecall.types import NewMemory, Origin

from .site import OPERATOR, Site, error, ids, in_process, said, write

PATH = "/v1/users/ann/messages"


@pytest.fixture
def engine() -> str:
    """SQLite only: the endpoints under test run the same statements on both engines."""
    return "sqlite"


class TestKeys:
    async def test_invalid_key_is_refused(self, site: Site) -> None:
        key = await site.key("ann")
        wrong = ["", "Bearer", f"Basic {key}", f"Bearer {key}x", key, "Bearer mr_a_b"]
        for header in wrong:
            answer = await site.client(Authorization=header).get(PATH)
            error(answer, 401, "UNAUTHENTICATED")
            assert answer.headers["www-authenticate"].startswith("Bearer")
        for header in ("", "Bearer", f"Basic {key}", key):
            told = error(await site.client(Authorization=header).get(PATH), 401, "UNAUTHENTICATED")
            assert told["message"] == "the header must be: Authorization: Bearer KEY"
        error(await site.client().get(PATH), 401, "UNAUTHENTICATED")
        error(await site.client().get("/v1/nothing/here"), 401, "UNAUTHENTICATED")
        await write(site.client(Authorization=f"bearer  {key}"), "ann", said(1))

    async def test_revoked_key_is_refused_at_once(self, site: Site) -> None:
        key, text = await site.library.store.keys.create(Grant(frozenset({"ann"})))
        client = site.client(text)
        await write(client, "ann", said(1))
        await site.library.store.keys.revoke(key.key_id)
        error(await client.get(PATH), 401, "UNAUTHENTICATED")

    async def test_expired_key_is_refused(
        self, lite: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        soon = datetime.now(UTC) + timedelta(hours=1)
        _, text = await lite.library.store.keys.create(Grant(None), expires_at=soon)
        client = lite.client(text)
        await write(client, "ann", said(1))

        class Later(datetime):
            @classmethod
            def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
                return datetime.now(UTC) + timedelta(hours=2)

        monkeypatch.setattr("memrecall.store.keys.datetime", Later)
        error(await client.get(PATH), 401, "UNAUTHENTICATED")

    async def test_foreign_and_unknown_users_are_indistinguishable(self, site: Site) -> None:
        ann, ben = await site.holder("ann"), await site.holder("ben")
        await write(ann, "ann", said(1))
        await write(ben, "ben", said(1), said(2))

        def shape(answer: httpx.Response) -> tuple[int, bytes, list[str]]:
            named = [name for name in answer.headers if name not in ("date", "x-request-id")]
            return answer.status_code, answer.content, named

        missing = await ann.get(f"{PATH}/m999/neighbors")
        assert missing.status_code == 404
        for path in [
            "/v1/users/ben/messages",
            "/v1/users/nobody/messages",
            "/v1/users/ben/messages/m001/neighbors",
            "/v1/users/nobody/messages/m001/neighbors",
            f"{PATH}/m002/neighbors",
        ]:
            assert shape(await ann.get(path)) == shape(missing), path
        for user in ("ben", "nobody"):
            query = {"user_id": user, "query_text": "message"}
            for name in ("lexical_search", "semantic_search"):
                answer = await ann.post(f"/v1/messages/{name}", json=query)
                assert shape(answer) == shape(missing)
            recall = await ann.post(f"/v1/users/{user}/recall", json={"query": "message"})
            assert shape(recall) == shape(missing)
            body = {"messages": [said(5)]}
            assert shape(await ann.post(f"/v1/users/{user}/messages", json=body)) == shape(missing)
        assert (await site.library.store.count("nobody"))["messages"] == 0

    async def test_key_is_limited_to_its_users(self, lite: Site) -> None:
        both = await lite.holder("ann", "ben")
        for user in ("ann", "ben"):
            await write(both, user, said(1))
        error(await both.get("/v1/users/eve/messages"), 404, "NOT_FOUND")

    async def test_key_of_erased_user_is_refused(self, site: Site) -> None:
        ann, both = await site.holder("ann"), await site.holder("ann", "ben")
        await write(ann, "ann", said(1))
        await write(both, "ben", said(1))
        await site.library.erase_user("ann")
        error(await ann.get(PATH), 401, "UNAUTHENTICATED")
        error(await both.get(PATH), 404, "NOT_FOUND")
        assert ids(await both.get("/v1/users/ben/messages")) == ["m001"]

    async def test_metrics_require_operator_key(self, lite: Site) -> None:
        everybody = await lite.holder()
        error(await everybody.get("/metrics"), 403, "PERMISSION_DENIED")
        key = (await lite.library.store.keys.create(Grant(frozenset(), permissions=OPERATOR)))[1]
        operator = lite.client(key)
        assert (await operator.get("/metrics")).status_code == 200
        error(await operator.get(PATH), 404, "NOT_FOUND")

    async def test_sensitive_memories_require_permission(self, lite: Site) -> None:
        ann = await lite.holder("ann")
        await write(ann, "ann", said(1, "my PIN is in the drawer"))
        secret = NewMemory(content="the PIN is 4711", memory_key="pin", sensitive=True)
        await lite.library.add_memories(Scope("ann"), [secret], origin=Origin.USER, actor="test")
        trusted = await lite.holder("ann", permissions=frozenset({Permission.SENSITIVE}))
        asked = {"query": "what is my PIN?"}
        for client, known in ((ann, False), (trusted, True)):
            result = await client.post("/v1/users/ann/recall", json=asked)
            assert result.status_code == 200
            assert ("4711" in result.text) is known

    async def test_public_endpoints_need_no_key(self, site: Site) -> None:
        await site.key("ann")
        client = site.client()
        health = await client.get("/healthz")
        assert set(health.json()) == {"status", "version"}
        for path in ("/openapi.json", "/docs"):
            assert (await client.get(path)).status_code == 200


class TestOpenDoor:
    async def test_local_callers_need_no_key_before_first_key(self, site: Site) -> None:
        client = site.client()
        await write(client, "ann", said(1))
        assert ids(await client.get(PATH)) == ["m001"]
        assert (await client.get("/metrics")).status_code == 200

        key = await site.key("ann")

        error(await client.get(PATH), 401, "UNAUTHENTICATED")
        assert ids(await site.client(key).get(PATH)) == ["m001"]

    async def test_revoking_the_last_key_does_not_reopen_service(self, site: Site) -> None:
        key, _ = await site.library.store.keys.create(Grant(None))
        await site.library.store.keys.revoke(key.key_id)
        error(await site.client().get(PATH), 401, "UNAUTHENTICATED")

    async def test_unknown_key_is_refused_by_open_service(self, lite: Site) -> None:
        error(await lite.client("mr_0011223344556677_x").get(PATH), 401, "UNAUTHENTICATED")

    async def test_open_service_refuses_non_local_requests(self, lite: Site) -> None:
        await write(lite.client(), "ann", said(1))
        port = lite.url.rpartition(":")[2]
        foreign = [
            {"Host": "evil.example"},
            {"Host": f"evil.example:{port}"},
            {"Host": "127.0.0.1.evil.example"},
            {"Host": "192.168.1.7"},
            {"Host": "[::1"},
            {"Origin": "https://evil.example"},
            {"Origin": "null"},
            {"Sec-Fetch-Site": "cross-site"},  # an image on a page is asked for without an Origin
            {"Sec-Fetch-Site": "same-site"},
            {"Origin": f"http://localhost:{port}"},  # not where the request goes
            {"X-Forwarded-For": "203.0.113.5"},
            {"Forwarded": "for=203.0.113.5"},
        ]
        for headers in foreign:
            answer = await lite.client(**headers).get(PATH)
            error(answer, 403, "PERMISSION_DENIED")
            assert "access-control-allow-origin" not in answer.headers
        for headers in ({"Host": f"localhost:{port}"}, {"Host": "[::1]"}, {"Origin": lite.url}):
            assert ids(await lite.client(**headers).get(PATH)) == ["m001"], headers

    async def test_form_of_web_page_cannot_write(self, lite: Site) -> None:
        for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
            content = b'{"messages": [{"role": "user", "content": "x"}]}'
            headers = {"Content-Type": kind} if kind else {}
            answer = await lite.client().post(PATH, content=content, headers=headers)
            error(answer, 415, "INVALID_ARGUMENT")

    async def test_public_server_is_never_keyless(self, lite_library: Library) -> None:
        async with in_process(lite_library, allow_keyless=False) as site:
            error(await site.client().get(PATH), 401, "UNAUTHENTICATED")


class TestWebPages:
    async def test_cors_admits_only_allowed_origins(self, lite_library: Library) -> None:
        from dataclasses import replace

        page = "https://app.example"
        lite_library.settings = replace(lite_library.settings, cors_origins=f"{page}, http://b")
        async with in_process(lite_library) as site:
            ask = {"Access-Control-Request-Method": "POST"}
            allowed = await site.client(Origin=page, **ask).options(PATH)
            assert allowed.headers["access-control-allow-origin"] == page
            denied = await site.client(Origin="https://evil.example", **ask).options(PATH)
            assert "access-control-allow-origin" not in denied.headers
            await write(site.client(Origin=page), "ann", said(1))
            key = await site.key("ann")
            answer = await site.client(key, Origin=page).get(PATH)
            assert answer.headers["access-control-allow-origin"] == page

    async def test_cors_is_disabled_by_default(self, lite: Site) -> None:
        key = await lite.key("ann")
        ask = {"Access-Control-Request-Method": "POST", "Origin": "https://app.example"}
        answer = await lite.client(key, **ask).options(PATH)
        error(answer, 405, "INVALID_ARGUMENT")
        assert "access-control-allow-origin" not in answer.headers
