"""Workspaces: empty, private, and confined to their root for any task name."""

import asyncio
import os
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memrecall.errors import Conflict, InvalidArgument, NotFound, StorageBusy
from memrecall.store.workspaces import (
    ReadLimits,
    Workspaces,
    is_task_id,
    retry_while_busy,
    search_files,
    show_files,
    walk,
)

from ..cases import check_each

HOSTILE = [
    "", ".", "..", "...", "../x", "..\\x", "a/b", "a\\b", "/etc", "/", "//x", "~", "~root", "a/",
    "./a", "a/..", "%2e%2e", "%2e%2e%2fx", "..%2f", "a\0b", "\0", "a\n", "\na", "a b", " a", "a ",
    "a\t", "-a", "_a", ".a", ".lock", ".restore-x", ".trash-x", "a.", "con", "CON", "nul.txt",
    "com1", "LPT9", "aux.", "conin$", "a:b", "c:", "C:\\x", "a*", "a?", "a|b", "<a>", '"a"',
    "$HOME", "`id`", "a;b", "a" * 65, "a" * 5_000, "ａ", "a．．", "․․", "‥", "…", "a∕b", "a⁄b",
    "a／b", "a＼b", "аdmin", "taßk", "e\u0301", "a\u200b", "a\u202eb", "\ufeffa", "任务", "١",
    "\ud800", "a\u2028",
]  # fmt: skip


ORDINARY = ["a", "task-12345-abcde", "A_b.c-1", "0", "a" * 64, "console", "com10", "v1.2-rc_3"]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "outer" / "root"


@pytest.fixture
def spaces(root: Path) -> Workspaces:
    return Workspaces(root)


def list_tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")} - {"root/.lock"}


class TestTaskIds:
    def test_hostile_name_is_refused_and_touches_nothing(
        self, spaces: Workspaces, root: Path
    ) -> None:
        before = list_tree(root.parent)

        def refuse(name: str) -> None:
            with pytest.raises(InvalidArgument, match="not a valid workspace name"):
                spaces.create(name)
            with pytest.raises(InvalidArgument, match="not a valid workspace name"):
                spaces.remove(name)
            assert list_tree(root.parent) == before

        check_each(HOSTILE, refuse, ascii)

    def test_ordinary_name_is_accepted(self, spaces: Workspaces, root: Path) -> None:
        def take(name: str) -> None:
            assert spaces.create(name) == root / name
            assert spaces.names() == [name]
            spaces.remove(name)

        check_each(ORDINARY, take)

    @given(st.text(max_size=70))
    def test_accepted_name_is_a_single_path_part(self, name: str) -> None:
        if is_task_id(name):
            assert name.isascii()
            assert Path("/r", name).parent == Path("/r")
            assert os.path.normpath(f"/r/{name}") == f"/r/{name}"
            assert not name.startswith(".")


class TestLife:
    def test_new_workspace_is_empty_and_private(self, spaces: Workspaces) -> None:
        old = os.umask(0o277)
        try:
            path = spaces.create("t")
        finally:
            os.umask(old)
        assert stat.S_IMODE(path.stat().st_mode) == 0o700
        assert path.is_absolute()
        assert list(path.iterdir()) == []

    def test_second_workspace_of_a_task_is_refused(self, spaces: Workspaces) -> None:
        (spaces.create("t") / "f").write_text("kept")
        with pytest.raises(Conflict, match="already"):
            spaces.create("t")
        assert (spaces.root / "t" / "f").read_text() == "kept"

    def test_removed_workspace_can_be_created_again(self, spaces: Workspaces) -> None:
        path = spaces.create("t")
        (path / "deep" / "er").mkdir(parents=True)
        (path / "deep" / "er" / "f").write_text("x")
        assert spaces.remove("t") == path
        assert not path.exists()
        assert set(os.listdir(spaces.root)) <= {".lock"}
        with pytest.raises(NotFound):
            spaces.remove("t")
        spaces.create("t")

    def test_remove_follows_no_link(self, spaces: Workspaces, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "precious").write_text("x")
        path = spaces.create("t")
        (path / "link").symlink_to(outside)
        spaces.remove("t")
        assert (outside / "precious").read_text() == "x"

    def test_link_in_the_root_is_no_workspace(self, spaces: Workspaces, tmp_path: Path) -> None:
        outside = tmp_path / "outside"
        outside.mkdir()
        (outside / "secret.txt").write_text("needle")
        (spaces.root / "t").symlink_to(outside)

        assert spaces.names() == []
        with pytest.raises(Conflict):
            spaces.create("t")
        with pytest.raises(NotFound):
            spaces.remove("t")
        assert search_files(spaces, "needle", ReadLimits()).hits == []
        assert (outside / "secret.txt").exists()

    def test_root_may_be_a_link(self, tmp_path: Path) -> None:
        (tmp_path / "real").mkdir()
        (tmp_path / "alias").symlink_to("real")
        assert Workspaces(tmp_path / "alias").create("t") == tmp_path / "real" / "t"

    def test_root_must_not_be_a_file(self, tmp_path: Path) -> None:
        (tmp_path / "file").write_text("x")
        with pytest.raises(Exception, match="file") as refusal:
            Workspaces(tmp_path / "file" / "root")
        assert isinstance(refusal.value, InvalidArgument)

    def test_exclusive_lock_keeps_others_out(self, spaces: Workspaces) -> None:
        with spaces.lock(exclusive=True):
            for operation in (spaces.names, lambda: spaces.create("t"), lambda: spaces.remove("t")):
                with pytest.raises(StorageBusy):
                    operation()
        with spaces.lock():
            spaces.create("t")
            with pytest.raises(StorageBusy), spaces.lock(exclusive=True):
                pass

    @pytest.mark.concurrent
    async def test_retry_while_busy_waits_for_the_lock(self, spaces: Workspaces) -> None:
        with spaces.lock(exclusive=True):
            waiting = asyncio.create_task(retry_while_busy(lambda: spaces.create("t"), 60))
            with pytest.raises(StorageBusy):
                await retry_while_busy(lambda: spaces.create("u"), 0.05)
            assert not waiting.done()
        assert await waiting == spaces.root / "t"


class TestReading:
    @pytest.fixture
    def filled(self, spaces: Workspaces, tmp_path: Path) -> Workspaces:
        entry, two = spaces.create("one"), spaces.create("two")
        (entry / "notes").mkdir()
        (entry / "notes" / "plan.md").write_text(
            "# Plan\nFirst tea.\nThen the red Needle in hay.\n"
        )
        (entry / "笔记.txt").write_text("第一行\n今天天气很好，我们去爬山。\n")
        (two / "log.txt").write_text("needle\nno hay here, but a needle: red needle in hay\n")
        (two / "binary.bin").write_bytes(b"needle\0needle")
        (two / "latin.txt").write_bytes("needle caf\xe9".encode("latin-1"))
        (tmp_path / "secret").write_text("needle outside")
        (two / "link.txt").symlink_to(tmp_path / "secret")
        os.mkfifo(two / "pipe")
        return spaces

    def test_hit_has_path_and_line(self, filled: Workspaces) -> None:
        result = search_files(filled, "RED needle", ReadLimits())
        assert [(hit.key, hit.line, hit.snippet) for hit in result.hits] == [
            ("one/notes/plan.md", 3, "Then the red Needle in hay."),
            ("two/log.txt", 2, "no hay here, but a needle: red needle in hay"),
        ]
        assert result.left_out == {"binary files": 2, "links and special files": 2}

    @pytest.mark.parametrize(
        ("query", "keys"),
        [
            ("needle camel", []),
            ("tea hay", ["one/notes/plan.md"]),
            ("爬山", ["one/笔记.txt"]),
            ("天氣", ["one/笔记.txt"]),  # in another normalization form
        ],
    )
    def test_search_requires_every_word(
        self, filled: Workspaces, query: str, keys: list[str]
    ) -> None:
        assert [hit.key for hit in search_files(filled, query, ReadLimits()).hits] == keys

    def test_long_line_is_cut_around_the_query(self, spaces: Workspaces) -> None:
        file = spaces.create("t") / "f"
        file.write_text("x " * 500 + "needle" + " y" * 500)
        (hit,) = search_files(spaces, "needle", ReadLimits()).hits
        assert "needle" in hit.snippet
        assert len(hit.snippet) <= 242
        file.write_text("x " * 500 + "needle at the end")
        (hit,) = search_files(spaces, "needle", ReadLimits()).hits
        assert hit.snippet == "…" + "x " * 20 + "needle at the end"

    def test_search_respects_limits_and_reports_them(self, filled: Workspaces) -> None:
        limited = search_files(filled, "needle", ReadLimits(hits=1))
        assert (len(limited.hits), limited.left_out["more hits"]) == (1, 1)
        small = search_files(filled, "needle", ReadLimits(file_bytes=10))
        assert (small.hits, small.left_out["large files"] >= 2) == ([], True)
        short = search_files(filled, "needle", ReadLimits(files=1))
        assert short.left_out["more files"] >= 3

    def test_show_files_returns_size_and_text(self, filled: Workspaces) -> None:
        files = show_files(filled, ReadLimits()).files
        assert list(files) == ["one", "two"]
        assert files["one"]["notes/plan.md"] == {
            "size": 46,
            "text": "# Plan\nFirst tea.\nThen the red Needle in hay.\n",
        }
        assert files["two"]["binary.bin"] == {"size": 13, "left_out": "binary files"}
        assert "link.txt" not in files["two"]

    def test_show_files_respects_limits_and_reports_them(self, filled: Workspaces) -> None:
        result = show_files(filled, ReadLimits(shown_bytes=11))
        assert result.files["one"]["notes/plan.md"] == {
            "size": 46,
            "text": "# Plan\nFirs",
            "left_out": "texts cut short",
        }
        assert result.files["one"]["笔记.txt"]["text"] == "第一行\n"  # cut between characters
        assert result.left_out["texts cut short"] >= 2
        total = show_files(filled, ReadLimits(shown_total=20))
        assert sum(len(f.get("text", "")) for t in total.files.values() for f in t.values()) <= 20
        limited = show_files(filled, ReadLimits(shown_files=1))
        assert sum(map(len, limited.files.values())) == 1

    def test_file_replaced_by_a_link_is_not_followed(
        self, spaces: Workspaces, tmp_path: Path
    ) -> None:
        (tmp_path / "secret").write_text("secret")
        (spaces.create("t") / "f").write_text("plain")
        with spaces.lock() as root:
            for entry in walk(root, "t"):
                (spaces.root / "t" / "f").unlink()
                (spaces.root / "t" / "f").symlink_to(tmp_path / "secret")
                assert entry.read(100) is None

    def test_pipe_does_not_block_reading(self, spaces: Workspaces) -> None:
        os.mkfifo(spaces.create("t") / "pipe")
        with spaces.lock() as root:
            (entry,) = walk(root, "t")
            assert not entry.is_file
            assert entry.read(10) is None
