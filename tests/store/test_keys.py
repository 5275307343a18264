"""Keys: the secret is returned once, only its hash is stored, and revocation is final."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest

from memrecall.errors import InvalidArgument, NotFound
from memrecall.scope import Permission
from memrecall.store import Grant, Key, Store
from memrecall.store.keys import MAX_USERS
from tests.counting import recorded_statements

from .samples import ANN, new_message, read_tables

SENSITIVE = frozenset({Permission.SENSITIVE})
FOR_ANN = Grant(frozenset({"ann"}))


async def test_verify_returns_the_key_with_its_grant(store: Store) -> None:
    grant = Grant(frozenset({"ann", "ben"}), "helper", read_only=True, permissions=SENSITIVE)
    created, text = await store.keys.create(grant, name="the phone")

    key = await store.keys.verify(text)

    assert key == created
    assert key.users == frozenset({"ann", "ben"})
    assert (key.agent_id, key.read_only, key.permissions) == ("helper", True, SENSITIVE)
    assert key.name == "the phone"


async def test_secret_is_not_stored(store: Store) -> None:
    key, text = await store.keys.create(FOR_ANN)
    secret = text.removeprefix(f"mr_{key.key_id}_")
    assert len(secret) >= 43
    assert secret not in str(await read_tables(store.database))
    assert secret not in str(await store.keys.list())
    assert key.secret_hash not in repr(key)


async def test_verify_refuses_invalid_texts(store: Store) -> None:
    key, text = await store.keys.create(FOR_ANN)
    invalid_texts = ["", "mr", "mr_", f"mr_{key.key_id}", f"mr_{key.key_id}_", "mr_\0_x", "mr_ü_x"]
    changed = [text[:-1], f"{text}x", f"{text} ", f"xx{text[2:]}"]
    for invalid in (*invalid_texts, *changed, f"mr_0000_{text.split('_', 2)[2]}"):
        assert await store.keys.verify(invalid) is None, invalid


async def test_revoked_key_is_refused_and_stays_listed(store: Store) -> None:
    key, text = await store.keys.create(FOR_ANN)
    revoked = await store.keys.revoke(key.key_id)

    assert await store.keys.verify(text) is None
    assert await store.keys.revoke(key.key_id) == revoked  # a second revocation changes nothing
    assert (await store.keys.list()).items == (revoked,)
    assert await store.keys.exist()
    with pytest.raises(NotFound, match="there is no key 0123456789abcdef"):
        await store.keys.revoke("0123456789abcdef")


async def test_revoke_accepts_the_id_or_the_whole_text(store: Store) -> None:
    for form in ("{id}", "mr_{id}", "{text}", " {text}\n"):
        key, text = await store.keys.create(FOR_ANN)
        revoked = await store.keys.revoke(form.format(id=key.key_id, text=text))
        assert revoked.key_id == key.key_id
        assert await store.keys.verify(text) is None


async def test_error_does_not_repeat_the_secret(store: Store) -> None:
    key, text = await store.keys.create(FOR_ANN)
    secret = text.removeprefix(f"mr_{key.key_id}_")
    for reference in (secret, f"mr_{secret}", f"mr_0123456789abcdef_{secret}", "\0", ""):
        with pytest.raises(NotFound) as error_info:
            await store.keys.revoke(reference)
        assert secret[:8] not in str(error_info.value)
    assert await store.keys.verify(text) is not None


async def test_key_expires(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    now = datetime.now(UTC)
    key, text = await store.keys.create(FOR_ANN, expires_at=now + timedelta(hours=1))
    assert await store.keys.verify(text) == key
    with pytest.raises(InvalidArgument, match="is in the past"):
        await store.keys.create(FOR_ANN, expires_at=now)

    class Later(datetime):
        @classmethod
        def now(cls, tz: object = None) -> datetime:  # type: ignore[override]
            return now + timedelta(hours=1)

    monkeypatch.setattr("memrecall.store.keys.datetime", Later)
    assert await store.keys.verify(text) is None


async def test_list_returns_pages_of_keys(store: Store) -> None:
    assert not await store.keys.exist()
    created = [(await store.keys.create(Grant(frozenset({f"u{n}", "x"}))))[0] for n in range(5)]
    keys: list[Key] = []
    after: str | None = ""
    while after is not None:
        page = await store.keys.list(after, limit=2)
        keys += page.items
        after = page.next_after
    assert keys == created  # in the order of creation
    with pytest.raises(NotFound):
        await store.keys.list("0123456789abcdef")
    with pytest.raises(InvalidArgument, match="limit 0"):
        await store.keys.list(limit=0)


@pytest.mark.parametrize(
    ("grant", "pattern"),
    [
        ({"users": frozenset()}, "0 users"),
        ({"users": frozenset(map(str, range(MAX_USERS + 1)))}, f"{MAX_USERS + 1} users"),
        ({"users": frozenset({"a\nb"})}, "user_id"),
        ({"users": None, "agent_id": ""}, "agent_id"),
    ],
)
def test_invalid_grant_is_refused(grant: dict[str, object], pattern: str) -> None:
    with pytest.raises(InvalidArgument, match=pattern):
        Grant(**grant)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "grant", [Grant(None), Grant(frozenset(), permissions=frozenset(Permission))]
)
async def test_key_may_be_for_all_users_or_an_operators_for_none(
    store: Store, grant: Grant
) -> None:
    _, text = await store.keys.create(grant)
    key = await store.keys.verify(text)
    assert key is not None
    assert key.users == grant.users


@pytest.mark.parametrize("name", ["x" * 256, "a\0b"])
async def test_invalid_name_is_refused(store: Store, name: str) -> None:
    with pytest.raises(InvalidArgument, match="the name"):
        await store.keys.create(FOR_ANN, name=name)


async def test_find_valid_returns_the_key_while_it_is_valid(store: Store) -> None:
    key, _ = await store.keys.create(FOR_ANN)
    assert (await store.keys.find_valid(key.key_id)) == key
    assert await store.keys.find_valid("nobody") is None
    await store.keys.revoke(key.key_id)
    assert await store.keys.find_valid(key.key_id) is None


async def test_names_of_keys_are_found_by_their_ids(store: Store) -> None:
    phone, _ = await store.keys.create(FOR_ANN, name="Ann's phone")
    unnamed, _ = await store.keys.create(FOR_ANN)
    await store.keys.revoke(phone.key_id)
    ids = [phone.key_id, unnamed.key_id, "local", phone.key_id]
    assert await store.keys.names(ids) == {phone.key_id: "Ann's phone"}
    assert await store.keys.names([]) == {}


class TestErasure:
    async def test_erasing_the_only_user_revokes_the_key(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])
        _, text = await store.keys.create(FOR_ANN, name="Ann's phone")

        assert (await store.owners.erase_user("ann")).keys == 1

        assert await store.keys.verify(text) is None
        (remaining,) = (await store.keys.list()).items
        assert (remaining.users, remaining.name) == (frozenset(), "")
        assert remaining.revoked_at is not None
        assert await store.keys.exist()  # the service does not become keyless

    async def test_erasing_a_user_removes_them_from_shared_keys(self, store: Store) -> None:
        await store.timeline(ANN).add([new_message("m")])
        _, shared_key = await store.keys.create(Grant(frozenset({"ann", "ben"})), name="both")
        _, general_key = await store.keys.create(Grant(None))

        await store.owners.erase_user("ann")

        shared, general = await store.keys.verify(shared_key), await store.keys.verify(general_key)
        assert shared is not None
        assert (shared.users, shared.name) == (frozenset({"ben"}), "both")
        assert general is not None
        assert general.users is None

    async def test_erase_user_accepts_a_user_known_from_a_key(self, store: Store) -> None:
        await store.keys.create(FOR_ANN)
        assert (await store.owners.erase_user("ann")).as_dict()["keys"] == 1
        with pytest.raises(NotFound):
            await store.owners.erase_user("ann")


async def test_look_ups_at_once_share_reads(store: Store) -> None:
    first, second = [(await store.keys.create(Grant(frozenset({name}))))[1] for name in ("a", "b")]
    with recorded_statements() as statements:
        found = await asyncio.gather(
            *(store.keys.verify(text) for text in [first, second, f"{first}x", "no key"] * 8)
        )
    users = [key and key.users for key in found]
    assert users == [frozenset({"a"}), frozenset({"b"}), None, None] * 8
    assert sum("api_keys" in statement for statement in statements) <= 2


async def test_revocation_between_look_ups_at_once(store: Store) -> None:
    key, text = await store.keys.create(Grant(None))
    await asyncio.gather(*(store.keys.verify(text) for _ in range(4)))
    await store.keys.revoke(key.key_id)
    assert await asyncio.gather(*(store.keys.verify(text) for _ in range(4))) == [None] * 4
