"""What hooks leave alone: ignored folders, and secrets in what is said."""

import json
from pathlib import Path

import pytest

from memrecall.importers.projects import IGNORE_FILE, is_ignored
from memrecall.integrations.hooks.bindings import read_binding
from memrecall.integrations.hooks.events import MASK, read_event, redact_patterns
from tests.cases import check_each, read_rows
from tests.hooks.hook_process import bind
from tests.hooks.payloads import samples

FOLDERS = ("a", "a/b", "a/b/c", "b", "client-x/src", "src/client-y", "x y", "[k]", "build/out")


def test_ignore_file_excludes_folders_like_git(tmp_path: Path) -> None:
    for folder in FOLDERS:
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)

    def check(case: tuple[str, list[str]]) -> None:
        (tmp_path / IGNORE_FILE).write_text(case[0], "utf-8")
        assert {folder for folder in FOLDERS if is_ignored(str(tmp_path / folder))} == {*case[1]}

    check_each(read_rows("imports", "excluded folders"), check, lambda case: repr(case[0]))


def test_ignore_file_applies_to_its_own_folder_and_links(tmp_path: Path) -> None:
    inside = tmp_path / "top" / "secret" / "src"
    inside.mkdir(parents=True)
    (tmp_path / "link").symlink_to(inside)
    (tmp_path / "top" / IGNORE_FILE).write_text("secret\n")
    assert not is_ignored(str(tmp_path / "top"))
    assert is_ignored(str(tmp_path / "link"))
    assert is_ignored(str(inside / "missing"))
    (tmp_path / "top" / IGNORE_FILE).write_text("*\n")
    assert is_ignored(str(tmp_path / "top"))
    (tmp_path / "top" / "secret" / IGNORE_FILE).write_text("!src\n")  # the nearest file decides …
    (tmp_path / "top" / IGNORE_FILE).write_text("src\n")
    assert not is_ignored(str(inside))
    (tmp_path / "top" / IGNORE_FILE).write_text("secret\n")  # … unless a folder above is excluded
    assert is_ignored(str(inside))


@pytest.mark.concurrent
async def test_session_in_ignored_folder_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / IGNORE_FILE).write_text("/\n")
    hook = bind(tmp_path)
    for sample in samples("Where does my sister live?", "In Lisbon.", str(tmp_path))[:2]:
        assert await hook.run(sample.event, sample.payload) == ""
    assert hook.pending == []
    assert hook.log == []


@pytest.mark.parametrize("ignored", [0, 1, None])
def test_session_with_several_folders_is_left_alone_if_one_is_ignored(
    tmp_path: Path, ignored: int | None
) -> None:
    roots = [tmp_path / "first", tmp_path / "second"]
    for place, root in enumerate(roots):
        root.mkdir()
        (root / IGNORE_FILE).write_text("/\n" if place == ignored else "")
    binding = read_binding(str(bind(tmp_path, "cursor").path))
    sample = next(each for each in samples("Hello", "Hi") if each.client == "cursor")
    payload = {**sample.payload, "workspace_roots": list(map(str, roots))}
    event = read_event(binding, sample.event, json.dumps(payload).encode())
    assert (event is None) == (ignored is not None)


def test_own_patterns_are_masked() -> None:
    assert redact_patterns("case 4711 of ACME", [r"\d+", "ACME"]) == f"case {MASK} of {MASK}"
