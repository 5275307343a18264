"""A project is its git remote, else the folder of its repository."""

import shutil
import subprocess
from pathlib import Path

import pytest

from memrecall.importers.projects import find_project, normalise_remote


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("git@github.com:Acme/shop.git", "github.com/Acme/shop"),
        ("https://user:secret@GitHub.com/Acme/shop.git/", "github.com/Acme/shop"),
        ("ssh://git@github.com:22/Acme/shop", "github.com/Acme/shop"),
        ("gitlab.example:组/项目.git", "gitlab.example/组/项目"),
        ("C:/repos/shop.git", ""),
        ("/srv/git/shop.git", ""),
        ("../shop.git", ""),
        ("http://[broken/shop", ""),
        ("", ""),
    ],
)
def test_remotes_of_one_repository_have_one_name(url: str, name: str) -> None:
    assert normalise_remote(url) == name


def git(folder: Path, *arguments: str) -> None:
    program = shutil.which("git") or "git"
    names = ["-c", "user.name=Ann", "-c", "user.email=ann@example.com"]
    subprocess.run([program, *names, *arguments], cwd=folder, check=True, capture_output=True)


def make_repository(folder: Path, remote: str | None) -> Path:
    folder.mkdir()
    git(folder, "init", "-q")
    git(folder, "commit", "-q", "--allow-empty", "-m", "Begin")
    if remote:
        git(folder, "remote", "add", "origin", remote)
    return folder


def test_clones_worktrees_and_folders_below_share_a_project(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop", "git@github.com:acme/shop.git")
    clone = make_repository(tmp_path / "clone", "https://github.com/acme/shop")
    git(shop, "worktree", "add", "-q", str(tmp_path / "tree"))
    (clone / "src" / "deep").mkdir(parents=True)
    folders = [shop, tmp_path / "tree", clone / "src" / "deep"]
    assert {find_project(str(folder)) for folder in folders} == {"github.com/acme/shop"}


def test_a_repository_without_a_remote_is_its_folder(tmp_path: Path) -> None:
    alone = make_repository(tmp_path / "alone", None)
    (alone / "src").mkdir()
    assert find_project(str(alone / "src")) == str(alone.resolve())
    assert find_project(str(tmp_path)) == str(tmp_path.resolve())
    assert find_project(str(tmp_path / "gone")) == str((tmp_path / "gone").resolve())


def test_a_damaged_configuration_is_no_error(tmp_path: Path) -> None:
    shop = make_repository(tmp_path / "shop", "git@github.com:acme/shop.git")
    (shop / ".git" / "config").write_bytes(b"\xff[remote\n=\n")
    assert find_project(str(shop)) == str(shop.resolve())
