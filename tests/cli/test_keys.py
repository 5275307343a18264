"""`memrecall keys`: a key is printed once, listed without its secret, and can be revoked."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from memrecall.cli.owners import read_expiry
from memrecall.errors import InvalidArgument

from .conftest import Shell, assert_error_line


def test_new_key_is_printed_once(shell: Shell, db: Path) -> None:
    created = shell("keys", "create", "--user", "u_12345", "--name", "phone", "--db", db)
    assert created.code == 0
    key = created.out.strip()
    assert key.startswith("mr_")
    assert "\n" not in key
    assert "not shown again" in created.err
    listing = shell("keys", "list", "--db", db)
    assert key.split("_")[1] in listing.out
    assert "phone: u_12345; read and write" in listing.out
    assert key.split("_", 2)[2] not in listing.out


def test_key_json_has_all_fields(shell: Shell, db: Path) -> None:
    created = shell(
        *("keys", "create", "--user", "a", "--user", "b", "--agent", "helper", "--read-only"),
        *("--allow-sensitive", "--allow-knowledge", "--operator", "--expires", "30d"),
        *("--name", "both", "--db", db, "--json"),
    ).json
    assert created["key"].startswith(f"mr_{created['key_id']}_")
    assert created["users"] == ["a", "b"]
    assert (created["agent_id"], created["read_only"], created["name"]) == ("helper", True, "both")
    assert created["permissions"] == ["knowledge", "operator", "sensitive"]
    remaining = datetime.fromisoformat(created["expires_at"]) - datetime.now(UTC)
    assert timedelta(days=29, hours=23) < remaining <= timedelta(days=30)
    del created["key"]
    listing = shell("keys", "list", "--db", db, "--json").json
    assert listing == {"items": [created], "next_after": None}


def test_revoked_key_is_listed_as_revoked(shell: Shell, db: Path) -> None:
    created = shell("keys", "create", "--all-users", "--db", db, "--json").json
    assert created["users"] is None
    assert (
        f"key {created['key_id']} is revoked"
        in shell("keys", "revoke", created["key_id"], "--db", db).out
    )
    assert "all users; read and write; revoked" in shell("keys", "list", "--db", db).out
    repeated = shell("keys", "revoke", created["key_id"], "--db", db, "--json").json
    assert repeated["revoked_at"] is not None
    unknown = shell("keys", "revoke", "0123456789abcdef", "--db", db)
    assert unknown.code == 2
    assert "there is no key 0123456789abcdef" in unknown.err


def test_revoke_accepts_whole_key_without_printing_it(shell: Shell, db: Path) -> None:
    created = shell("keys", "create", "--all-users", "--db", db, "--json").json
    secret = created["key"].split("_", 2)[2]
    for unknown_key in (f"mr_0123456789abcdef_{secret}", f"x{secret}"):
        rejected = shell("keys", "revoke", unknown_key, "--db", db)
        assert rejected.code == 2
        assert secret[1:] not in rejected.err + rejected.out
    outcome = shell("keys", "revoke", created["key"], "--db", db)
    assert f"key {created['key_id']} is revoked" in outcome.out


def test_new_key_explains_id_and_effects(shell: Shell, db: Path) -> None:
    assert shell("add", "likes tea", "--user", "ann", "--db", db).code == 0
    first = shell("keys", "create", "--user", "ann", "--user", "annn", "--db", db)
    second = shell("keys", "create", "--user", "ann", "--db", db)

    assert first.code == second.code == 0
    key_id = first.out.split("_")[1]
    assert f"memrecall keys revoke {key_id}" in first.err
    assert "first key" in first.err
    assert "nothing is stored yet for annn\n" in first.err
    assert "first key" not in second.err
    assert "nothing is stored" not in second.err


def test_operator_key_needs_no_user(shell: Shell, db: Path) -> None:
    created = shell("keys", "create", "--operator", "--db", db, "--json").json
    assert created["users"] == []
    assert created["permissions"] == ["operator"]
    assert "no user; read and write; operator" in shell("keys", "list", "--db", db).out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ([], "the key would give access to nothing"),
        (["--user", "a", "--all-users"], "are mutually exclusive"),
        (["--user", ""], "user_id ''"),
        (["--user", "a", "--expires", "soon"], "--expires 'soon' is not a time"),
        (["--user", "a", "--expires", "2 days"], "90m, 12h, 30d"),
        (["--user", "a", "--expires", "0d"], "is in the past"),
        (["--user", "a", "--expires", "2020-01-01"], "is in the past"),
        (["--user", "a", "--name", "x" * 256], "256 characters"),
    ],
)
def test_invalid_key_options_are_rejected(
    shell: Shell, db: Path, options: list[str], message: str
) -> None:
    assert_error_line(shell("keys", "create", *options, "--db", db), message)


def test_expires_accepts_durations_and_times() -> None:
    for text, span in [
        ("90m", timedelta(minutes=90)),
        ("12h", timedelta(hours=12)),
        ("30d", timedelta(days=30)),
        (" 8w ", timedelta(weeks=8)),
    ]:
        expiry = read_expiry(text)
        assert expiry is not None
        assert abs(expiry - datetime.now(UTC) - span) < timedelta(seconds=5)
    assert read_expiry(None) is None
    assert read_expiry("2999-01-01T00:00:00Z") == datetime(2999, 1, 1, tzinfo=UTC)
    with pytest.raises(InvalidArgument, match="too far"):
        read_expiry("999999w")


def test_keys_are_listed_oldest_first_in_pages(shell: Shell, db: Path) -> None:
    for name in ("one", "two", "three"):
        shell("keys", "create", "--user", "a", "--name", name, "--db", db)
    lines = shell("keys", "list", "--db", db).out.splitlines()
    assert [line.split()[3] for line in lines] == ["one:", "two:", "three:"]
    assert datetime.now(UTC).strftime("  %Y-%m-%d ") in lines[0]
    first = shell("keys", "list", "--limit", 2, "--db", db, "--json").json
    second = shell("keys", "list", "--after", first["next_after"], "--db", db, "--json").json
    assert len(first["items"]) == 2
    assert len(second["items"]) == 1
    assert "more: --after" in shell("keys", "list", "--limit", 2, "--db", db).out
