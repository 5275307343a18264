"""docs/reliability.md: every guarantee names tests that exist."""

import re
from pathlib import Path

from .cases import check_each

ROOT = Path(__file__).parent.parent
ROW = re.compile(r"^\| (?P<guarantee>.+?) \| (?P<tests>.+) \|$", re.M)
NAMED_FILE = re.compile(r"`((?:tests|benchmarks)/[\w/]+\.py)(?: [^`]*)?`")
NAMED_TARGET = re.compile(r"`make ([\w-]+)`")
TEST = re.compile(r"^(?: {4})?(?:async )?def test_\w+\(", re.M)


def read_rows() -> list[tuple[str, str]]:
    text = (ROOT / "docs" / "reliability.md").read_text("utf-8")
    heading, *rows = ((match["guarantee"], match["tests"]) for match in ROW.finditer(text))
    assert heading == ("guarantee", "test")
    return rows


def test_every_guarantee_names_tests_that_exist() -> None:
    targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text("utf-8"), re.M)

    def check(row: tuple[str, str]) -> None:
        guarantee, tests = row
        files = NAMED_FILE.findall(tests)
        assert files, guarantee
        for file in files:
            source = (ROOT / file).read_text("utf-8")
            assert file.startswith("benchmarks/") or TEST.search(source), f"{file} has no test"
        assert set(NAMED_TARGET.findall(tests)) <= set(targets)

    rows = read_rows()
    assert len(rows) > 40
    check_each(rows, check)
