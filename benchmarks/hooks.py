"""The cost of a client hook, compared with starting Python.

    python benchmarks/hooks.py                     30 rounds, 1,000 stored messages
    python benchmarks/hooks.py --helper            without a service, as after `memrecall connect`
    python -m tests.load 2 python benchmarks/hooks.py --helper   the same on two busy cores

Starts `memrecall serve` on loopback, or the helper. Each round runs a bare `python -c pass`, a hook
in an ignored folder (the hook alone), that of an answer (storing) and of a prompt (recalling and
storing), so that other load affects all of them; `first` is the first prompt. A ratio is that of
the medians. Exits with 1 if the hook alone or that of an answer takes more than three times as long
as Python, the first prompt more than 2 s, or the median of the others 150 ms more than Python.
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
from typing import Any

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

from memrecall.integrations.hooks import client, helper  # noqa: E402
from memrecall.integrations.hooks.bindings import Binding, write_binding  # noqa: E402

MOST, FIRST, PROMPT = 3.0, 2_000.0, 150.0  # times Python, and milliseconds
_MAIN = [sys.executable, "-c", "from memrecall.cli import main; main()"]
_USER = "ann"
# A prompt that was asked often would be harder to answer than those of people.
_SERVERS = ["heron", "egret", "stork", "bison", "otter", "maple", "tulip", "comet", "delta"]


def main() -> None:
    """Print the medians and their ratios."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--embedder", default="local")
    parser.add_argument("--python", default=sys.executable)
    parser.add_argument("--helper", action="store_true")
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
    is_slow = max(ratios["alone"], ratios["answer"]) > MOST or medians["first"] > FIRST
    sys.exit(is_slow or medians["prompt"] - medians["python"] > PROMPT)


def _measure(folder: Path, options: argparse.Namespace) -> dict[str, list[float]]:
    quick = {"MEMRECALL_EMBEDDER": options.embedder, "MEMRECALL_DASHBOARD": "false"}
    environment = {**os.environ, **quick}
    db = str(folder / "chat.db")
    _fill(folder, db, options.messages, environment)
    path = folder / "hooks" / "claude-code.json"
    binding = Binding("claude-code", _USER, url="", db=db, deadline=30.0)
    command = [*_MAIN, "serve", "--port", "0", "--json", "--db", db]
    pipes: Any = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    serve = None if options.helper else subprocess.Popen(command, env=environment, **pipes)
    try:
        url = json.loads(serve.stdout.readline())["url"] if serve and serve.stdout else ""
        write_binding(str(path), binding._replace(url=url))
        (path.parent / ".memrecallignore").write_text("ignored\n")
        os.environ.update(environment)
        helper.warm_helper(str(path), binding._replace(url=url), 60.0)
        runs = [_run_all(options.python, path, n, environment) for n in range(options.rounds + 2)]
        log = path.with_name("hooks.log").read_text("utf-8")
        assert "problem" not in log, log
    finally:
        serve.terminate() if serve else helper.stop_helper(str(path))
    times = {name: [run[name] for run in runs[2:]] for name in runs[0]}
    return times | {"first": [runs[0]["prompt"]]}


def _fill(folder: Path, db: str, count: int, environment: dict[str, str]) -> None:
    texts = [f"Our server {name} listens on port 55{n}." for n, name in enumerate(_SERVERS, 10)]
    texts += [f"Step {n}: change module{n % 97} and run its test{n}." for n in range(count)]
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
    server = number % len(_SERVERS)
    asked = {**common, "prompt": f"What was the port of our server {_SERVERS[server]} again?"}
    prompt, block = _time([*hook, "UserPromptSubmit", *config], asked, environment)
    assert f"port 55{server + 10}".encode() in block, (number, block)
    answer = {**common, "last_assistant_message": f"Answer {number}: it is in your notes."}
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
