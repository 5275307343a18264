"""`benchmarks/public.py` on small invented files in the formats of LoCoMo and LongMemEval."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent.parent


def run(tmp_path: Path, kind: str) -> dict[str, Any]:
    source, out = ROOT / "fixtures" / "public" / f"{kind}.json", tmp_path / "out.json"
    options = ["--embedder", "none", "--work", str(tmp_path), "--json", str(out)]
    command = [sys.executable, str(ROOT / "benchmarks" / "public.py"), kind, str(source), *options]
    subprocess.run(command, check=True, capture_output=True)
    result: dict[str, Any] = json.loads(out.read_text())
    return result


def test_locomo_is_read_from_its_original_format(tmp_path: Path) -> None:
    # One question has no evidence; other labels are "D1:01" and "D1:2; D2:1", as in the data.
    result = run(tmp_path, "locomo")
    assert (result["messages"], result["questions"], result["left_out"]) == (3, 3, 1)
    turns, sessions = result["figures"]["search, turns"], result["figures"]["search, sessions"]
    names = ["answerable (2)", "adversarial (1)", "multi-hop (1)", "single-hop (1)"]
    assert list(turns) == list(sessions) == names
    assert turns["single-hop (1)"]["all@5"] == sessions["single-hop (1)"]["all@5"] == 1
    assert turns["multi-hop (1)"]["any@5"] == 1
    assert set(result["figures"]["recall by the rules"]["adversarial (1)"]) == {"nothing", "unsure"}


def test_longmemeval_is_read_from_its_original_format(tmp_path: Path) -> None:
    result = run(tmp_path, "longmemeval")
    assert (result["messages"], result["questions"], result["left_out"]) == (6, 2, 0)
    for table in ("search, turns", "search, sessions"):
        assert list(result["figures"][table]) == ["answerable (1)", "single-session-user (1)"]
        assert result["figures"][table]["answerable (1)"]["all@5"] == 1
    assert result["figures"]["recall by the rules"]["unanswerable (1)"]["nothing"] == 1
