"""`--project` and `memrecall projects`."""

import json
from pathlib import Path

import pytest

from .conftest import Shell

SHOP, BLOG = "github.com/acme/shop", "github.com/acme/blog"
SECRET = "zephyr"
READS = [
    ("search", "which release is deployed"),
    ("recall", "which release is deployed"),
    ("memories", "list"),
    ("memories", "search", "which release is deployed"),
    ("messages",),
    ("export",),
]


@pytest.fixture
def ann(tmp_path: Path, shell: Shell) -> tuple[str, ...]:
    """The options of a user with two projects."""
    options = ("--db", str(tmp_path / "x.db"), "--user", "ann")
    said = f"the {SECRET} release is deployed at noon"
    assert shell("memories", "add", said, "--as-is", "--project", SHOP, *options).code == 0
    assert shell("memories", "add", said, "--project", SHOP, *options).code == 0
    assert shell("memories", "add", "we use hugo", "--project", BLOG, *options).code == 0
    return options


@pytest.mark.parametrize("command", READS, ids=" ".join)
def test_commands_read_one_project(
    shell: Shell, ann: tuple[str, ...], command: tuple[str, ...]
) -> None:
    for project, is_read in (
        (("--project", BLOG), False),
        (("--project", SHOP), True),
        (("--project", BLOG, "--all-projects"), True),
        ((), True),
    ):
        outcome = shell(*command, *ann, *project)
        assert outcome.code == 0, outcome.err
        assert (SECRET in outcome.out) == is_read, outcome.out


def test_projects_are_listed_and_erased(shell: Shell, ann: tuple[str, ...]) -> None:
    assert f"{SHOP}  1 session, 1 message, 1 memory" in shell("projects", "list", *ann).out
    items = shell("projects", "list", *ann, "--json").json["items"]
    assert {item["project"] for item in items} == {SHOP, BLOG}
    assert shell("projects", "erase", SHOP, *ann, "--yes").out == "erased: 1 messages, 1 memories\n"
    assert SECRET not in shell("export", *ann).out
    (left,) = shell("projects", "list", *ann, "--json").json["items"]
    assert left["project"] == BLOG
    again = shell("projects", "erase", SHOP, *ann, "--yes", "--json")
    assert json.loads(again.err)["error"]["code"] == "NOT_FOUND"
    assert shell("export", *ann, "--project", SHOP).code == 2
