"""Fail where SQL is written as a string outside the migrations and the engine's own pragmas."""

import ast
import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent / "memrecall"
# `text` is SQLAlchemy's door for raw SQL; tables.py uses it for the constant defaults of columns.
RAW_CALLS = {"exec_driver_sql", "executescript"}
ALLOWED = {
    "store/database/engine.py",
    "store/database/dialects.py",
    "store/database/tables.py",
    "store/database/migrations/__init__.py",
}
SQL = re.compile(
    r"^\s*(select\s.+\sfrom|insert\s+into|update\s.+\sset|delete\s+from)\s", re.I | re.S
)


def faults(path: Path) -> list[str]:
    """Return the places in one file where SQL is written as a string."""
    tree = ast.parse(path.read_text("utf-8"))
    found = []
    for node in ast.walk(tree):
        raw_call = isinstance(node, ast.Attribute) and node.attr in RAW_CALLS
        raw_text = (
            isinstance(node, ast.ImportFrom)
            and node.module == "sqlalchemy"
            and any(name.name == "text" for name in node.names)
        )
        sentence = (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and SQL.match(node.value)
        )
        if raw_call or raw_text or sentence:
            found.append(f"{path}:{getattr(node, 'lineno', 0)}")
    return found


def main() -> int:
    """Check the package; 1 if anything was found."""
    found = [
        place
        for path in sorted(ROOT.rglob("*.py"))
        if path.relative_to(ROOT).as_posix() not in ALLOWED
        for place in faults(path)
    ]
    for place in found:
        print(f"{place}: SQL is built with SQLAlchemy constructs outside the migrations")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
