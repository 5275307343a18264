"""The language tables: every row compiles, and every pattern is used."""

import re
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

import pytest

import memrecall.extraction
from memrecall.extraction.rules.tables import load_table
from tests.cases import check_each

LANGUAGES = ("en", "zh", "shared")
CODE = "".join(
    path.read_text("utf-8") for path in Path(memrecall.extraction.__file__).parent.rglob("*.py")
)


def test_every_row_compiles() -> None:
    def check(language: str) -> None:
        table = load_table(language)
        for section in table._sections:
            if section.startswith("slots "):
                assert table.slots(section.removeprefix("slots "))
            elif section.startswith("rewrite "):
                assert table.rewrites(section.removeprefix("rewrite "))
            elif section in ("patterns", "aliases"):
                assert table.patterns(section)

    check_each(LANGUAGES, check)


def test_every_named_row_is_used() -> None:
    def check(language: str) -> None:
        table = load_table(language)
        text = "\n".join(row for rows in table._sections.values() for row in rows)
        for section in ("patterns", "words", "sets"):
            for name, _ in table.rows(section):
                assert f'"{name}"' in CODE or f"{{{name}}}" in text, name

    check_each(LANGUAGES, check)


def test_every_pattern_in_code_exists() -> None:
    calls = r'\b(?:EN|ZH|_SHARED|table)\.(?:search|match|fullmatch|remove|pattern)\(\s*"(\w+)"'
    names = {name for language in LANGUAGES for name, _ in load_table(language).rows("patterns")}
    assert set(re.findall(calls, CODE)) <= names


def test_lines_are_short_and_files_explain_their_columns() -> None:
    packages = ("memrecall.extraction", "memrecall.extraction.rules")
    folders = (path for name in packages for path in (files(name) / "tables").iterdir())
    for file in (file for folder in folders for file in folder.iterdir()):
        lines = file.read_text("utf-8").splitlines()
        assert lines[0].startswith("# "), file.name
        assert max(map(len, lines)) <= 100, file.name


@pytest.mark.service
@pytest.mark.concurrent
def test_modules_that_use_tables_can_be_imported_first() -> None:
    for module in ("conflicts", "signature", "summaries"):
        code = f"import memrecall.extraction.{module}"
        assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0, module
