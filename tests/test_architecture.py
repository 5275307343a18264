"""docs/architecture.md names real code, and AutoGen is needed by few modules."""

import re
import subprocess
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
DOCUMENT = ROOT / "docs" / "architecture.md"
DOTTED = re.compile(r"`(memrecall(?:\.\w+)+)(?:\(\))?`")
STEP = re.compile(r"^\d+\. `(memrecall(?:\.\w+)+)`", re.M)
FILE = re.compile(r"`((?:memrecall|prompts|tests|docs|fixtures|benchmarks|examples)/[\w./-]+)`")

AUTOGEN_HOMES = ("memrecall.agent.autogen", "memrecall.model", "memrecall.testing")
# A package of another framework may be missing; its integration then cannot be imported.
IMPORT_WITHOUT_AUTOGEN = """
import importlib, sys
sys.modules.update(dict.fromkeys(("autogen_core", "autogen_agentchat", "autogen_ext")))
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError as error:
        if (error.name or "autogen").startswith(("autogen", "memrecall")):
            print(name)
"""


def test_every_name_exists() -> None:
    names = DOTTED.findall(DOCUMENT.read_text("utf-8"))
    assert len(names) > 30
    assert [name for name in names if not _exists(name)] == []


def test_every_file_exists() -> None:
    files = FILE.findall(DOCUMENT.read_text("utf-8"))
    assert files
    assert [name for name in files if not (ROOT / name).exists()] == []


@pytest.mark.service
@pytest.mark.concurrent
def test_modules_load_without_autogen() -> None:
    modules = [name for name in _modules() if not name.startswith(AUTOGEN_HOMES)]
    assert len(modules) > 250
    command = [sys.executable, "-c", IMPORT_WITHOUT_AUTOGEN, *modules]
    outcome = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert outcome.stdout.split() == []


def _modules() -> list[str]:
    paths = sorted((ROOT / "memrecall").rglob("*.py"))
    names = (".".join(path.relative_to(ROOT).with_suffix("").parts) for path in paths)
    return [name.removesuffix(".__init__") for name in names if not name.endswith(".__main__")]


def _exists(name: str) -> bool:
    try:
        _resolve(name)
    except AttributeError:
        return False
    return True


def _resolve(name: str) -> Any:
    """Resolve a dotted name: import the module part, then follow the attributes."""
    parts = name.split(".")
    for end in range(len(parts), 0, -1):
        module = ".".join(parts[:end])
        if _is_module(module):
            value: Any = import_module(module)
            for part in parts[end:]:
                value = getattr(value, part)
            return value
    raise AttributeError(name)


def _is_module(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False
