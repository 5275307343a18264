"""The shape of the code stays within its limits, and the import contracts cover every package."""

import tomllib
from pathlib import Path
from typing import Any

import pytest

from benchmarks.code_shape import Shape, measure

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "memrecall"
# Where an outside library may be imported; everywhere else its contract must forbid it.
HOMES = {
    "sqlalchemy": {"store"},
    "autogen_core": {"model", "agent.autogen", "testing"},
    "fastapi": {"server", "dashboard"},
    "nicegui": {"dashboard"},
    "opentelemetry": {"telemetry"},
    "mcp": {"server.mcp"},
}


@pytest.fixture(scope="module")
def shape() -> Shape:
    return measure(PACKAGE)


def test_modules_are_few_and_folders_small(shape: Shape) -> None:
    assert shape.modules <= 300
    assert {f: n for f, n in shape.modules_per_folder.items() if n > 16} == {}
    # Version 0.1 had 60,600 lines. Its features took 54,527 before newer ones were added: bounds of
    # models, AutoGen teams and components, the hooks of the service, mem0's second interface,
    # forks, a graph that follows facts, facts that are grounded, claims beside facts, deletion
    # from all that quotes, the whole Memory over HTTP, recall from the knowledge base, strict and
    # lenient leak filters; limits of strangers, several service processes, worker processes,
    # backups of whole databases, checks of damage, errors by SQLSTATE, budgets of queries,
    # databases that are distributed over several servers; in the dashboard repairs, an audit log,
    # lists of all recalls, feedback, first visits, sample memories and undone corrections.
    assert shape.lines <= 72_400
    assert (
        shape.format_lines <= 6_900
    )  # six agent frameworks, hooks of five clients, fourteen formats


def test_modules_have_names_of_things_and_several_users(shape: Shape) -> None:
    assert len(shape.ing_modules) <= 5, shape.ing_modules
    assert len(shape.single_importer) <= 60, shape.single_importer


def test_a_class_name_has_one_meaning(shape: Shape) -> None:
    assert shape.duplicate_classes == {}


def test_no_import_circles(shape: Shape) -> None:
    assert shape.circles == []


def test_functions_and_modules_are_short(shape: Shape) -> None:
    assert shape.function_lines["median"] <= 10
    assert shape.function_lines["p95"] <= 40
    assert shape.function_lines["longest"] <= 80
    assert shape.largest_module[1] <= 400, shape.largest_module


def test_extraction_rules_are_a_small_engine_over_tables() -> None:
    folder = PACKAGE / "extraction" / "rules"
    files = [file for file in folder.rglob("*") if file.is_file() and file.suffix != ".pyc"]
    modules = [file for file in files if file.suffix == ".py" and file.name != "__init__.py"]
    assert len(modules) <= 20
    assert sum(len(file.read_text("utf-8").splitlines()) for file in files) <= 4_560


@pytest.mark.parametrize("library", HOMES)
def test_import_contracts_cover_every_package(library: str) -> None:
    contract = _contract_against(library)
    forbidden = {name.removeprefix("memrecall.") for name in contract["source_modules"]}
    assert _expected_sources(HOMES[library]) == forbidden


def test_layers_cover_every_package() -> None:
    (contract,) = [c for c in _contracts() if c["type"] == "layers"]
    assert contract["exhaustive"]
    assert contract["exhaustive_ignores"] == ["__main__"]


def test_measure_counts_what_it_says(tmp_path: Path) -> None:
    package = tmp_path / "sample"
    (package / "parts").mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "parts" / "__init__.py").write_text("")
    (package / "loading.py").write_text("from sample.parts import wheel\n\nclass Axle: ...\n")
    (package / "parts" / "sizes.txt").write_text("28\n29\n")
    (package / "parts" / "wheel.py").write_text(
        "class Axle: ...\n\ndef turn():\n    import sample.loading\n"
    )
    shape = measure(package)
    assert shape.modules == 2
    assert (shape.lines, shape.lines_with_tables) == (7, 9)
    assert shape.modules_per_folder == {"sample": 1, "sample.parts": 1}
    assert shape.ing_modules == ["sample.loading"]
    assert shape.duplicate_classes == {"Axle": ["sample.loading", "sample.parts.wheel"]}
    assert shape.single_importer == ["sample.loading", "sample.parts.wheel"]
    assert shape.circles == [["sample.loading", "sample.parts.wheel"]]


def test_importers_are_files_with_an_import_statement(tmp_path: Path) -> None:
    package = tmp_path / "sample"
    package.mkdir()
    (package / "__init__.py").write_text("from sample.data import DATA\n")
    (package / "data.py").write_text("DATA = 1\n")
    (package / "view.py").write_text("from sample import DATA\n")
    # The view has no importer, and takes the data from the package.
    assert measure(package).single_importer == ["sample.data"]


def test_imports_by_name_make_circles(tmp_path: Path) -> None:
    package = tmp_path / "sample"
    package.mkdir()
    (package / "view.py").write_text("import sample.data\nimport sample.pages\n")
    (package / "data.py").write_text('VIEW = "sample.view"\n')
    (package / "pages.py").write_text('load = lambda name: f"sample.{name}"\n')
    shape = measure(package)
    assert shape.circles == [["sample.data", "sample.pages", "sample.view"]]
    assert shape.single_importer == ["sample.data", "sample.pages"]


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
