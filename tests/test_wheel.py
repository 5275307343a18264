"""The built wheel: its contents, and its use outside the repository."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from memrecall.embedding.embedders import LOCAL_MODEL

pytestmark = [pytest.mark.concurrent, pytest.mark.service]

ROOT = Path(__file__).parent.parent

# A copy, because building writes into the folder it builds from.
PARTS = ("memrecall", "prompts", "pyproject.toml", "README.md", "LICENSE")

PROMPTS = sorted((ROOT / "prompts").glob("*.*.md"))

LOAD = """
import sys
from memrecall.model import prompts
print(prompts._folder())
print(prompts.load_prompt(*sys.argv[1:]))
"""

SEARCH_PROGRAM = """
import asyncio, sys
import memrecall
from memrecall.memory import Library
from memrecall.scope import Scope
from memrecall.search import SearchRequest
from memrecall.settings import Settings
from memrecall.types import NewMessage

async def main():
    async with await Library.open(Settings(db="chat.db", embedder="hash")) as library:
        await library.add_messages(Scope("lin"), [NewMessage(role="user", content="我不吃辣")])
        page = await library.search(Scope("lin"), SearchRequest("吃辣"))
        print(memrecall.__file__, page.results[0].content)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the contents of a freshly built wheel."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("installed")
    subprocess.run(["cp", "-r", *(str(ROOT / part) for part in PARTS), source], check=True)  # noqa: S607
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    subprocess.run([*build, "--wheel-dir", target, source], check=True, capture_output=True)
    (wheel,) = target.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(target)
    return target


@pytest.mark.service
def test_wheel_contains_package_data(installed: Path) -> None:
    files = {path.relative_to(installed).as_posix() for path in installed.rglob("*")}
    package = [path for path in (ROOT / "memrecall").rglob("*") if path.is_file()]
    data = {
        path.relative_to(ROOT).as_posix() for path in package if "__pycache__" not in path.parts
    }
    assert f"memrecall/embedding/query_maps/{LOCAL_MODEL}.npy" in data
    assert sorted(data - files) == [], "list them as package data in pyproject.toml"
    assert not any(name.startswith(("tests/", "benchmarks/", "prompts/")) for name in files)


def test_wheel_contains_all_modules_and_prompts(installed: Path) -> None:
    modules = {path.relative_to(ROOT) for path in (ROOT / "memrecall").rglob("*.py")}
    prompts = {Path("memrecall/prompts.d") / path.name for path in PROMPTS}
    missing = sorted(str(path) for path in modules | prompts if not (installed / path).is_file())
    assert not missing, "list their packages in pyproject.toml"
    assert not (installed / "memrecall/prompts.d/README.md").exists()


def test_wheel_loads_prompts(installed: Path, tmp_path: Path) -> None:
    name, language, _ = PROMPTS[0].name.split(".")
    environment = {**os.environ, "PYTHONPATH": str(installed), "PYTHONUTF8": "1"}
    process = subprocess.run(
        [sys.executable, "-c", LOAD, name, language],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        encoding="utf-8",
    )
    assert process.returncode == 0, process.stderr
    location, text = process.stdout.split("\n", 1)
    assert Path(location).is_relative_to(installed)
    assert text.strip() == PROMPTS[0].read_text("utf-8").strip()


@pytest.mark.service
def test_wheel_imports_and_searches(installed: Path, tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(installed)}
    process = subprocess.run(
        [sys.executable, "-c", SEARCH_PROGRAM],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert process.returncode == 0, process.stderr
    location, content = process.stdout.split()
    assert Path(location).is_relative_to(installed)
    assert content == "我不吃辣"
