"""A program that does not close its memory exits cleanly and stores everything."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from memrecall import Memory

from ..waiting import PROCESS_LIMIT

SCRIPT = """
from memrecall import Memory

memory = Memory(db=DB)
memory.add("Remember: I live in Milan.", user_id="ann", background=True)
"""


@pytest.mark.service
@pytest.mark.concurrent
def test_script_without_close_exits_and_stores_everything(tmp_path: Path) -> None:
    file = str(tmp_path / "memory.db")
    script = SCRIPT.replace("DB", repr(file))
    environment = {**os.environ, "MEMRECALL_EMBEDDER": "local"}
    process = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        env=environment,
        timeout=PROCESS_LIMIT,
    )
    assert (process.returncode, process.stdout, process.stderr) == (0, "", "")
    with Memory(db=file) as memory:
        memories = memory.get_all(user_id="ann")["results"]
    assert [item["memory"] for item in memories] == ["I live in Milan."]
