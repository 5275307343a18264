"""The shape of the code stays within its limits, and the import contracts cover every package."""

import sys
import tomllib
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "memrecall"
SHARED_NAMES = 35  # public names that two or more files define
# Where an outside library may be imported; everywhere else its contract must forbid it.
HOMES = {
    "sqlalchemy": {"store"},
    "autogen_core": {"model", "agent.autogen", "testing"},
    "fastapi": {"server", "dashboard"},
    "nicegui": {"dashboard"},
    "mcp": {"server.mcp"},
}


def load_code_shape() -> Any:
    """Import the script, which is outside all packages."""
    spec = spec_from_file_location("code_shape", ROOT / ".ci" / "code_shape.py")
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


code_shape = load_code_shape()


@pytest.fixture(scope="module")
def shape() -> Any:
    return code_shape.measure(PACKAGE)


def test_a_public_name_has_one_meaning(shape: Any) -> None:
    assert shape.shared_classes == []
    assert len(shape.shared_names) <= SHARED_NAMES, shape.shared_names


def test_no_import_circles(shape: Any) -> None:
    assert shape.circles == []


def test_no_function_is_long(shape: Any) -> None:
    assert shape.function_lines["longest"] <= 80


@pytest.mark.parametrize("library", HOMES)
def test_import_contracts_cover_every_package(library: str) -> None:
    contract = _contract_against(library)
    forbidden = {name.removeprefix("memrecall.") for name in contract["source_modules"]}
    assert _expected_sources(HOMES[library]) == forbidden


def test_layers_cover_every_package() -> None:
    (contract,) = [c for c in _contracts() if c["type"] == "layers"]
    assert contract["exhaustive"]
    assert contract["exhaustive_ignores"] == ["__main__"]


def test_no_test_imports_a_benchmark() -> None:
    importing = ("import benchmarks", "from benchmarks")
    files = [
        file.relative_to(ROOT).as_posix()
        for file in (ROOT / "tests").rglob("*.py")
        if any(line.lstrip().startswith(importing) for line in file.read_text("utf-8").splitlines())
    ]
    assert files == []


def test_measure_counts_what_it_says(tmp_path: Path) -> None:
    package = tmp_path / "sample"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "parts" / "__init__.py").write_text("")
    (package / "loading.py").write_text(
        "from sample.parts import wheel\n\nclass Axle: ...\nSIZE = 28\n"
    )
    (package / "parts" / "wheel.py").write_text(
        "class Axle: ...\nSIZE: int = 29\ndef turn():\n    import sample.loading\n"
    )
    (package / "pages.py").write_text('load = lambda name: f"sample.{name}"\n')
    homes = ["sample.loading", "sample.parts.wheel"]
    shape = code_shape.measure(package)
    assert (shape.modules, shape.lines) == (3, 9)
    assert shape.modules_per_folder == {"sample": 2, "sample.parts": 1}
    assert shape.ing_modules == ["sample.loading"]
    assert shape.shared_names == {"Axle": homes, "SIZE": homes}
    assert shape.shared_classes == ["Axle"]
    assert shape.single_importer == homes
    assert shape.circles == [homes]


def _contracts() -> list[dict[str, Any]]:
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
    contracts: list[dict[str, Any]] = settings["tool"]["importlinter"]["contracts"]
    return contracts


def _contract_against(library: str) -> dict[str, Any]:
    (contract,) = [c for c in _contracts() if library in c.get("forbidden_modules", ())]
    return contract


def _expected_sources(homes: set[str]) -> set[str]:
    """Return every package but the homes; where a home is inside a package, its siblings."""
    names: set[str] = set()
    for name in _children(PACKAGE):
        inside = {home.partition(".")[2] for home in homes if home.startswith(f"{name}.")}
        if inside:
            names |= {f"{name}.{child}" for child in _children(PACKAGE / name) - inside}
        elif name not in homes:
            names.add(name)
    return names - {"__main__"}


def _children(folder: Path) -> set[str]:
    packages = {path.parent.name for path in folder.glob("*/__init__.py")}
    return packages | {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
