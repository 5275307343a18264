"""The cost of a client hook while a service is running, compared with starting Python.

    python benchmarks/hooks.py                     30 rounds, 1,000 stored messages
    python benchmarks/hooks.py --rounds 5 --json   a few seconds, to see that it runs
    python benchmarks/hooks.py --python PATH       another interpreter for Python and the hooks

Starts `memrecall serve` on loopback. Each round runs a bare `python -c pass`, a hook in an ignored
folder (the hook alone), that of an answer (storing) and of a prompt (recalling and storing), so
that other load affects all of them. A ratio is that of the medians. Exits with 1 if the hook alone
or that of an answer takes more than three times as long as Python. That of a prompt is shown, but
has no limit here: most of it is the recall.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from memrecall.integrations.hooks import client  # noqa: E402
from memrecall.integrations.hooks.bindings import Binding, write_binding  # noqa: E402

MOST = 3.0
_MAIN = [sys.executable, "-c", "from memrecall.cli import main; main()"]
_USER = "ann"
_PROMPT = "What was the port of our production database again?"


def main() -> None:
    """Print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--embedder", default="local")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seconds = _measure(Path(folder), options)
    medians = {name: statistics.median(times) * 1000 for name, times in seconds.items()}
    ratios = {name: medians[name] / medians["python"] for name in ("alone", "answer", "prompt")}
    if options.json:
        print(json.dumps({"milliseconds": medians, "ratios": ratios}))
    else:
        for name, median in medians.items():
            ratio = f"  {ratios[name]:.2f} times Python" if name in ratios else ""
            print(f"{name:<8} {median:7.1f} ms{ratio}")
    sys.exit(max(ratios["alone"], ratios["answer"]) > MOST)


def _measure(folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    environment = {
        **os.environ,
        "MEMRECALL_EMBEDDER": options.embedder,
        "MEMRECALL_DASHBOARD": "false",
    }
    db = str(folder / "chat.db")
    _fill(folder, db, options.messages, environment)
    serve = subprocess.Popen(
        [*_MAIN, "serve", "--port", "0", "--json", "--db", db],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert serve.stdout is not None
        url = json.loads(serve.stdout.readline())["url"]
        path = folder / "hooks" / "claude-code.json"
        write_binding(str(path), Binding("claude-code", _USER, url=url, deadline=30.0))
        (path.parent / ".memrecallignore").write_text("ignored\n")
        numbers = range(options.rounds + 2)
        runs = [_run_all(options.python, path, number, environment) for number in numbers][2:]
        log = path.with_name("hooks.log")
        assert not log.exists(), log.read_text("utf-8")
    finally:
        serve.terminate()
        serve.wait()
    return {name: [run[name] for run in runs] for name in runs[0]}


def _fill(folder: Path, db: str, count: int, environment: dict[str, str]) -> None:
    fact = "Our production database listens on port 5544 of db7."
    texts = [fact, *(f"Step {n}: change module{n % 97} and run its test{n}." for n in range(count))]
    common = {"user_id": _USER, "role": "user", "ts": "2026-01-26T10:47:00Z"}
    lines = [{**common, "message_id": f"m{n}", "content": text} for n, text in enumerate(texts)]
    file = folder / "chat.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)), "utf-8")
    command = [*_MAIN, "import", str(file), "--db", db]
    subprocess.run(command, env=environment, check=True, capture_output=True)


def _run_all(python: str, path: Path, number: int, environment: dict[str, str]) -> dict[str, float]:
    common = {"session_id": f"session-{number}", "cwd": str(path.parent)}
    ignored = str(path.parent / "ignored")
    hook = [python, "-I", "-S", client.__file__]
    config = ["--config", str(path)]
    asked = {**common, "prompt": _PROMPT}
    prompt, block = _time([*hook, "UserPromptSubmit", *config], asked, environment)
    assert b"5544" in block, block
    answer = {**common, "last_assistant_message": f"Port 5544, answer {number}."}
    return {
        "python": _time([python, "-c", "pass"], {}, environment)[0],
        "alone": _time([*hook, "Stop", *config], {**answer, "cwd": ignored}, environment)[0],
        "answer": _time([*hook, "Stop", *config], answer, environment)[0],
        "prompt": prompt,
    }


def _time(command: list[str], payload: object, environment: dict[str, str]) -> tuple[float, bytes]:
    data = json.dumps(payload).encode()
    start = time.perf_counter()
    done = subprocess.run(command, input=data, env=environment, capture_output=True, check=True)
    return time.perf_counter() - start, done.stdout


if __name__ == "__main__":
    main()
