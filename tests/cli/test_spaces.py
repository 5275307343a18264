"""`memrecall spaces`, and `--space` of the commands that read or write one."""

import io
from pathlib import Path
from typing import Any

import pytest

from .conftest import Outcome, Shell, assert_error_line

STRANGER = "there is no such space, or you are not a member of it"


class Team:
    """A space of Ann, who is its admin, and Ben, a contributor."""

    def __init__(self, shell: Shell, db: Path) -> None:
        self._shell, self._db = shell, db
        created = self.run("ann", "spaces", "create", "team-x", "--name", "Team X").json
        assert (created["space_id"], created["role"]) == ("team-x", "admin")
        self.run("ann", "spaces", "add", "team-x", "ben", "--role", "contributor", "--name", "Ben")
        self.run("ann", "add", "I live in Rome", "--type", "home", "--key", "rome")
        added = self.run("ben", "add", "Remember that Ben lives in Oslo", "--space", "team-x").json
        self.oslo = f"space:team-x/{added['results'][0]['id']}"

    def run(self, user: str, *arguments: object, json: bool = True) -> Outcome:
        options = ["--json"] if json else []
        outcome = self._shell(*arguments, "--user", user, "--db", self._db, *options)
        assert outcome.code == 0, outcome.err
        return outcome

    def fail(self, user: str, message: str, *arguments: object) -> None:
        outcome = self._shell(*arguments, "--user", user, "--db", self._db)
        assert_error_line(outcome, message)

    def operate(self, *arguments: object) -> Any:
        return self._shell(*arguments, "--db", self._db, "--json").json


@pytest.fixture
def team(shell: Shell, db: Path) -> Team:
    return Team(shell, db)


def test_members_and_grants_name_roles(team: Team) -> None:
    (space,) = team.run("ben", "spaces", "list").json["items"]
    assert (space["name"], space["role"]) == ("Team X", "contributor")
    for command in ("members", "grants"):
        lines = team.run("ben", "spaces", command, "team-x", json=False).out.splitlines()
        assert [line.split()[:2] for line in lines] == [["ann", "admin"], ["ben", "contributor"]]
        assert lines[1].endswith(", by ann")
    team.run("ann", "spaces", "add", "team-x", "ben", "--role", "reader")
    team.fail("ben", "this needs the role 'contributor'", "add", "tea", "--space", "team-x")
    team.run("ben", "spaces", "remove", "team-x", "ben")
    log = team.run("ann", "spaces", "audit", "team-x").json["items"]
    assert [entry["action"] for entry in log] == ["leave", "role", "join", "create"]
    assert "leave    ben  by ben" in team.run("ann", "spaces", "audit", "team-x", json=False).out


def test_invited_users_accept_or_decline(team: Team) -> None:
    for user in ("cleo", "dora"):
        invite = ("spaces", "add", "team-x", user, "--role", "reader", "--invite")
        out = team.run("ann", *invite, json=False).out
        assert out.startswith(f"{user} is invited as reader of team-x")
        team.fail(user, STRANGER, "spaces", "members", "team-x")
    (line,) = team.run("cleo", "spaces", "invitations", json=False).out.splitlines()
    assert line.split()[:4] == ["team-x", "reader", "Team", "X"]
    assert line.endswith(", by ann")
    (item,) = team.run("cleo", "spaces", "invitations").json["items"]
    assert (item["space_id"], item["role"]) == ("team-x", "reader")
    listed = team.run("ann", "spaces", "members", "team-x", json=False).out.splitlines()
    assert ["invited" in line for line in listed] == [False, False, True, True]
    assert team.run("cleo", "spaces", "accept", "team-x").json["role"] == "reader"
    assert len(team.run("cleo", "spaces", "list").json["items"]) == 1
    assert team.run("dora", "spaces", "decline", "team-x").json["declined"]
    assert "no invitations" in team.run("dora", "spaces", "invitations", json=False).out
    for verb in ("accept", "decline"):
        for space in ("team-x", "none"):
            team.fail("dora", STRANGER, "spaces", verb, space)
    team.run("ann", "spaces", "add", "team-x", "eve", "--invite")
    gone = team.run("ann", "spaces", "remove", "team-x", "eve", json=False).out
    assert "the invitation of eve to team-x is withdrawn" in gone
    gone = team.run("ann", "spaces", "remove", "team-x", "cleo", json=False).out
    assert "cleo is no longer a member of team-x" in gone
    # On the machine of the database, whoever adds a user answers for them.
    added = team.run("ann", "spaces", "add", "team-x", "dora", json=False).out
    assert added.startswith("dora is reader of team-x")


def test_strangers_learn_nothing(team: Team) -> None:
    for command in (
        *("search home --space", "recall home? --space", "memories search home --space"),
        *("add tea --space", "add tea --as-is --space", "spaces audit", "spaces members"),
        "spaces delete --name x",
    ):
        for space in ("team-x", "none"):
            team.fail("dora", STRANGER, *command.split(), space)


def test_hits_say_where_they_are_from(team: Team) -> None:
    team.run("ben", "add", "The gate code is 4711", "--as-is", "--space", "team-x")
    for command in (["search"], ["memories", "search"], ["recall"]):
        out = team.run("ann", *command, "who lives in Oslo", "--space", "team-x", json=False).out
        assert "space: team-x, by Ben, 20" in out
        assert team.oslo.split("/")[0] in out
        assert "team-x" not in team.run("ann", *command, "who lives in Oslo", json=False).out
    found = team.run("ann", "search", "gate code", "--space", "team-x").json["results"][0]
    assert (found["space"], found["author"], found["kind"]) == ("team-x", "Ben", "memory")


def test_memory_commands_accept_ids_of_spaces(team: Team) -> None:
    assert team.run("ann", "memories", "show", team.oslo).json["author"] == "Ben"
    assert team.run("ben", "memories", "update", team.oslo, "--text", "Ben lives in Bergen").json
    assert len(team.run("ann", "memories", "history", team.oslo).json["results"]) == 2
    team.run("ann", "memories", "delete", team.oslo)
    team.fail("dora", "there is no memory", "memories", "show", team.oslo)


def test_promoted_memories_can_be_taken_back(team: Team) -> None:
    promoted = team.run("ann", "spaces", "promote", "rome", "team-x").json
    seen = team.run("ben", "spaces", "who-can-see", promoted["id"]).json
    assert seen["owner"] == {"kind": "space", "id": "team-x"}
    assert [member["member"] for member in seen["members"]] == ["ann", "ben"]
    team.fail("ben", "another member", "spaces", "demote", promoted["id"], "team-x")
    taken = team.run("ann", "spaces", "demote", promoted["id"], "team-x", json=False).out
    assert taken.startswith(f"{promoted['id']} is no longer shared")
    own = team.run("ann", "spaces", "who-can-see", "rome", json=False).out
    assert own.split() == ["user", "ann"]


def test_the_message_of_a_purged_copy_can_be_taken_back(team: Team) -> None:
    added = team.run("ann", "add", "Remember that the key is below the mat").json
    key = added["results"][0]["id"]
    for _ in range(2):
        copy = team.run("ann", "spaces", "promote", key, "team-x").json["id"]
        team.run("ann", "memories", "purge", copy, "--keep-sources", "--yes")
        found = team.run("ben", "search", "key mat", "--space", "team-x").json["results"]
        assert [item["kind"] for item in found if "mat" in item["content"]] == ["message"]
        team.run("ann", "spaces", "demote", key, "team-x")
        found = team.run("ben", "search", "key mat", "--space", "team-x").json["results"]
        assert not any("mat" in item["content"] for item in found)
    team.fail("ann", f"'team-x' has no copy of '{key}'", "spaces", "demote", key, "team-x")


def test_why_explains_hits_and_recalls(team: Team) -> None:
    (why,) = team.run("ann", "spaces", "why", team.oslo).json["items"]
    assert (why["space"], why["role"], why["author"]) == ("team-x", "admin", "Ben")
    recalled = team.run("ann", "recall", "who lives in Oslo?", "--space", "team-x").json
    trace = recalled["trace"]["trace_id"]
    out = team.run("ann", "spaces", "why", trace, json=False).out
    assert "ann is a member of the space (admin)" in out


def test_deletion_asks_for_the_name(team: Team, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.StringIO("team-x\n"))
    wrong = team._shell("spaces", "delete", "team-x", "--user", "ann", "--db", team._db)
    assert (wrong.code, "type its name" in wrong.err) == (2, True)
    assert "is not the name of this space" in wrong.err
    team.fail("ben", "'admin'", "spaces", "delete", "team-x", "--name", "Team X")
    monkeypatch.setattr("sys.stdin", io.StringIO("Team X\n"))
    assert "space team-x erased" in team.run("ann", "spaces", "delete", "team-x", json=False).out
    assert team.run("ben", "spaces", "list").json["items"] == []


@pytest.mark.parametrize("with_contributions", [False, True])
def test_erased_users_leave_their_spaces(team: Team, with_contributions: bool) -> None:
    flags = ["--with-contributions"] if with_contributions else []
    team.operate("users", "erase", "ben", "--yes", *flags)
    hits = team.run("ann", "search", "Oslo", "--space", "team-x").json["results"]
    shared = [hit["author"] for hit in hits if hit["space"]]
    assert bool(shared) is not with_contributions
    assert all(author.startswith("erased-") for author in shared)


def test_keys_can_be_members(team: Team) -> None:
    create = ("keys", "create", "--name", "bot")
    key = team.operate(*create, "--space", "team-x", "--role", "contributor")
    assert key["users"] == []
    grant = team.run("ann", "spaces", "grants", "team-x").json["items"][-1]
    assert (grant["member"], grant["role"]) == (f"key:{key['key_id']}", "contributor")
    assert "bot  since" in team.run("ann", "spaces", "grants", "team-x", json=False).out
    assert_error_line(team._shell(*create, "--space", "none", "--db", team._db), STRANGER)
    assert_error_line(team._shell(*create, "--db", team._db), "access to nothing")
    admin = team._shell(*create, "--user", "ann", "--role", "admin", "--db", team._db)
    assert_error_line(admin, "--role is the role in a space")
    assert len(team.operate("keys", "list")["items"]) == 1
