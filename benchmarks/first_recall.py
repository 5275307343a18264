"""From `git clone` to the first right recall on one's own ChatGPT export: the seconds of each step.

Writes an export of about a thousand messages, made of the fixtures, then clones this repository
into an empty folder and runs the commands of docs/importing.md there. Prints the seconds of each
and, as other work on the machine adds to them, those of the processor.

Usage: python benchmarks/first_recall.py [--repository URL]
"""

import argparse
import json
import os
import subprocess
import tempfile
import time
import zipfile
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
SOURCES = ("memrecall/dashboard/sample_chat.jsonl", "fixtures/eval/corpus.jsonl")
QUESTION = "Who has my spare key?"
ANSWER = "chatgpt-maya-051"
STEPS = (
    "git clone --quiet {repository} memrecall",
    "cd memrecall && make install",
    "cd memrecall && source .venv/bin/activate && memrecall import ../export.zip --user me",
    f'cd memrecall && source .venv/bin/activate && memrecall recall "{QUESTION}" --user me --json',
)


def write_export(file: Path) -> int:
    """Write an archive as ChatGPT does; return the number of its messages."""
    conversations: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in _read_messages():
        conversations[row["session_id"]].append(row)
    data = [_to_conversation(name, rows) for name, rows in conversations.items()]
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("conversations.json", json.dumps(data))
        archive.writestr("user.json", json.dumps({"email": "me@example.org"}))
    return sum(map(len, conversations.values()))


def _read_messages() -> Iterator[dict[str, Any]]:
    """Yield the messages of conversations with an assistant, leaving out groups of people."""
    for source in SOURCES:
        lines = map(json.loads, (ROOT / source).read_text("utf-8").splitlines())
        rows = [row for row in lines if "role" in row]  # not the memories
        assisted = {row["user_id"] for row in rows if row["role"] == "assistant"}
        yield from (row for row in rows if row["user_id"] in assisted)


def _to_conversation(name: str, rows: list[dict[str, Any]]) -> dict[str, Any]:
    mapping: dict[str, Any] = {"root": {"id": "root", "parent": None, "message": None}}
    parent = "root"
    for row in rows:
        key = row["message_id"]
        message = {
            "id": key,
            "author": {"role": row["role"]},
            "create_time": datetime.fromisoformat(row["ts"]).timestamp(),
            "content": {"content_type": "text", "parts": [row["content"]]},
        }
        mapping[key] = {"id": key, "parent": parent, "message": message}
        parent = key
    return {"id": name, "title": name, "mapping": mapping, "current_node": parent}


def run_steps(repository: str, folder: Path) -> str:
    """Run each step, print its seconds, and return the output of the last one."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"MEMRECALL_DB": str(folder / "me.db"), "MEMRECALL_CONFIG": os.devnull}
    shown, total, total_processor = "", 0.0, 0.0
    for step in STEPS:
        command = ["bash", "-c", step.format(repository=repository)]
        start, before = time.perf_counter(), os.times()
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        seconds, after = time.perf_counter() - start, os.times()
        if done.returncode:
            raise SystemExit(f"{step} failed:\n{done.stdout}{done.stderr}")
        processor = sum(after[2:4]) - sum(before[2:4])
        shown, total, total_processor = done.stdout, total + seconds, total_processor + processor
        shown_step = step.rpartition(" && ")[2].format(repository=repository)
        print(f"{seconds:7.1f} s {processor:7.1f} s  {shown_step}")
    print(f"{total:7.1f} s {total_processor:7.1f} s  in all")
    return shown


def main() -> None:
    """Measure the steps, and check that the recall is right."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repository", default=str(ROOT), help="what is cloned: this one")
    repository = parser.parse_args().repository
    with tempfile.TemporaryDirectory(prefix="memrecall-") as folder:
        messages = write_export(Path(folder, "export.zip"))
        print(f"an export of {messages} messages")
        keys = json.loads(run_steps(repository, Path(folder)))["handoff"]["relevant_memory_keys"]
    if keys[:1] != [ANSWER]:
        raise SystemExit(f"the recall names {keys}, not {ANSWER}")
    print(f"the recall names {ANSWER} first: right")


if __name__ == "__main__":
    main()
