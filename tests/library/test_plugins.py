"""Plugins: parts that a third-party package provides by entry points, loaded when they are used.

The sample is installed into a folder as pip would do it.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memrecall.embedding import make_embedder
from memrecall.errors import InvalidArgument
from memrecall.memory import AsyncMemory, Library
from memrecall.model.openai_client import make_client
from memrecall.plugins import find_plugin, plugin_names
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.settings import Settings
from memrecall.types import NewMessage, Role
from tests.extractors import SentenceExtractor

ROOT = Path(__file__).parents[2]
SAMPLE = Path(__file__).parent / "sample_plugin.py"
ENTRY_POINTS = """
[memrecall.embedders]
sample = sample_plugin:make_embedder
broken = sample_plugin:nothing_there

[memrecall.models]
sample = sample_plugin:make_model

[memrecall.graph_dbs]
sample = sample_plugin:make_graphs

[memrecall.vector_dbs]
sample = sample_plugin:make_vectors
"""


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The sample package, installed."""
    packages = tmp_path / "site"
    info = packages / "sample_plugin-1.0.dist-info"
    info.mkdir(parents=True)
    (packages / "sample_plugin.py").write_text(SAMPLE.read_text("utf-8"), "utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: sample-plugin\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(ENTRY_POINTS)
    monkeypatch.syspath_prepend(str(packages))
    monkeypatch.delitem(sys.modules, "sample_plugin", raising=False)
    return packages


@pytest.mark.usefixtures("installed")
class TestSamplePlugin:
    def test_plugin_is_loaded_only_when_it_is_used(self) -> None:
        assert plugin_names("embedders") == ["broken", "sample"]
        assert "sample_plugin" not in sys.modules
        assert find_plugin("embedders", "other") is None
        assert "sample_plugin" not in sys.modules
        assert callable(find_plugin("embedders", "sample"))
        assert "sample_plugin" in sys.modules

    async def test_memory_uses_every_part_of_the_plugin(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("memrecall.search.index.external.MAX_ROWS_IN_MEMORY", 1)
        settings = Settings(
            db=str(tmp_path / "a.db"),
            snapshots=False,
            embedder="sample:3",
            graph_db="sample:here",
            vector_db="sample",
        )
        extractor = SentenceExtractor()
        async with AsyncMemory(settings=settings, extractor=extractor, user_id="ann") as memory:
            for text in ("I live in Paris.", "I like green tea.", "I play chess."):
                await memory.add(text)
            answer = await memory.search("Who likes green tea?")
            assert answer["results"][0]["memory"] == "User likes green tea."
            assert (await memory.graph("user"))["relations"]
            library = (await memory._open()).library
            parts: Any = sys.modules["sample_plugin"]
            assert library.embedder is not None
            assert library.embedder.model == "sample-3"
            assert parts.calls["graph"] > 0
            assert parts.calls["products"] > 0
            await memory.erase()
            assert parts.calls["forgotten"] == ["ann", "ann"]  # the graph, and the vectors

    async def test_model_setting_selects_the_plugin(self) -> None:
        assert type(make_client(Settings(model="sample:large"))).__name__ == "SampleModel"
        ordinary = make_client(Settings(model="llama3:8b", base_url="http://127.0.0.1:9/v1"))
        assert type(ordinary).__name__ == "ServerClient"

    def test_broken_plugin_is_named_in_the_error(self) -> None:
        with pytest.raises(InvalidArgument, match="broken") as error_info:
            make_embedder("broken:x")
        assert "sample_plugin:nothing_there" in error_info.value.hint

    def test_hint_lists_installed_plugins(self) -> None:
        with pytest.raises(InvalidArgument) as error_info:
            make_embedder("nobody:x")
        assert "local" in error_info.value.hint
        assert "sample" in error_info.value.hint


@pytest.mark.service
@pytest.mark.concurrent
async def test_command_line_uses_the_plugin(installed: Path, tmp_path: Path) -> None:
    settings = Settings(db=str(tmp_path / "a.db"), embedder="sample:3", snapshots=False)
    async with await Library.open(settings) as library:
        message = NewMessage(message_id="m1", role=Role.USER, content="green tea")
        await library.add_messages(Scope("ann"), [message])
        await library.vectors.settle()
        assert (await library.search(Scope("ann"), SearchRequest("tea"))).results
    process = subprocess.run(  # noqa: ASYNC221 -- nothing else runs meanwhile
        [sys.executable, "-m", "memrecall", "search", "tea", "--user", "ann", "--db", settings.db],
        env={
            "PATH": "",
            "HOME": str(tmp_path),
            "PYTHONPATH": f"{ROOT}:{installed}",
            "MEMRECALL_EMBEDDER": "sample:3",
        },
        capture_output=True,
        text=True,
        check=False,
    )
    assert (process.returncode, process.stderr) == (0, "")
    assert "green tea" in process.stdout
