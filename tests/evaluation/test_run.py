"""`memrecall eval run`: end to end, stopped, resumed, refused."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memrecall.evaluation.evaluators import SearchEvaluator
from memrecall.evaluation.questions import Question
from memrecall.evaluation.runs import RunFolder
from tests.evaluation.conftest import Bench, use_few_resamples
from tests.evaluation.samples import CORPUS, QUERIES, message, read_lines, write_lines
from tests.waiting import LIMIT

MODES = pytest.mark.parametrize("mode", ["search", "recall"])


def results(bench: Bench, name: str) -> dict[str, Any]:
    return {row["query_id"]: row for row in read_lines(bench.file(name, "results.jsonl"))}


def keys(row: dict[str, Any]) -> list[str]:
    return [key for key, _ in row["retrieved"]]


@MODES
def test_equal_runs_write_equal_files(bench: Bench, mode: str) -> None:
    done = bench.run("first", mode)
    assert done.code == 0, done.err
    files = {path.name for path in (bench.folder / "first").iterdir()}
    assert files == {"queries.jsonl", "results.jsonl", "summary.json", "timings.jsonl"}
    assert list(results(bench, "first")) == [row["query_id"] for row in QUERIES]
    timings = read_lines(bench.file("first", "timings.jsonl"))
    assert [row["query_id"] for row in timings] == [row["query_id"] for row in QUERIES]
    assert all(row["seconds"] > 0 for row in timings)
    assert bench.run("second", mode).code == 0
    first, second = (bench.file(name, "results.jsonl") for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_summary_has_plan_and_counts(bench: Bench) -> None:
    told = bench.run("run", "search", "--depth", 3).json
    kept = json.loads(bench.file("run", "summary.json").read_bytes())
    assert told.items() >= {k: v for k, v in kept.items() if k != "format"}.items()
    assert told["complete"]
    assert told["plan"]["depth"] == 3
    assert len(told["plan"]["corpus_sha256"]) == 64
    assert told["counts"] == {
        "messages": 8,
        "memories": 1,
        "users": 2,
        "questions": 7,
        "answered": 7,
        "unanswerable": 1,
        "evidence_hidden_by_as_of": 1,
        "fallbacks": 0,
    }
    assert told["metrics"]["overall"]["recall@10"]["questions"] == 6
    assert set(told["metrics"]["categories"]) == {"fact", "name", "unanswerable"}
    assert "recall@10" not in told["metrics"]["categories"]["unanswerable"]
    assert told["metrics"]["latency"]["p50"] > 0
    assert all(len(row["retrieved"]) <= 3 for row in results(bench, "run").values())


def test_search_run_finds_messages_and_memories_in_both_languages(bench: Bench) -> None:
    bench.run("run")
    found = results(bench, "run")
    assert keys(found["q1"])[0] == "m1"
    assert keys(found["q3"])[0] == "m3"
    assert keys(found["q4"])[0] == "tea"


@MODES
def test_rows_after_as_of_are_hidden(bench: Bench, mode: str) -> None:
    bench.run("run", mode)
    found = results(bench, "run")
    assert keys(found["q2"])[0] == "m2"
    assert not {"m3", "m4"} & set(keys(found["q2"]))  # said after January
    assert not {"m2", "m3", "m4"} & set(keys(found["q7"]))


def test_handed_off_keys_come_first(bench: Bench) -> None:
    bench.run("run", "recall")
    for row in results(bench, "run").values():
        handed = row["relevant_memory_keys"]
        assert keys(row)[: len(handed)] == handed
        others = [score for _, score in row["retrieved"][len(handed) :] if score is not None]
        assert others == sorted(others, reverse=True)
        assert row["model_calls"] >= 1
        assert row["prompt_characters"] > 0
        assert row["windows"][0] == 5
        assert not (row["abstained"] and handed)
    assert any(row["relevant_memory_keys"] for row in results(bench, "run").values())


def test_recall_abstains_without_evidence(bench: Bench) -> None:
    bench.run("run", "recall")
    assert results(bench, "run")["q6"]["abstained"]


def test_ctrl_c_during_last_question_closes_database(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ask = SearchEvaluator.ask

    async def interrupt_last(self: SearchEvaluator, question: Question) -> Any:
        result = await ask(self, question)
        if question.query_id == QUERIES[-1]["query_id"]:
            signal.raise_signal(signal.SIGINT)  # the event loop cancels the task at its next await
        return result

    monkeypatch.setattr(SearchEvaluator, "ask", interrupt_last)
    stopped = bench.run("run")
    assert (stopped.code, stopped.err) == (130, "stopped; run it again to continue\n")
    assert not [record for record in caplog.records if record.exc_info]
    assert bench.run("run").json["complete"]


@MODES
def test_interrupted_run_continues(
    bench: Bench, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench.run("whole", mode)
    stop_after(3, monkeypatch)
    stopped = bench.run("run", mode)
    assert stopped.code == 130
    assert "run it again to continue" in stopped.err
    summary = json.loads(bench.file("run", "summary.json").read_bytes())
    assert (summary["complete"], summary["imported"]) == (False, True)
    assert summary["counts"]["answered"] == 3
    assert summary["metrics"]["overall"]
    assert bench.file("run", "store.db").exists()
    monkeypatch.undo()
    prepare_environment(bench, monkeypatch)
    done = bench.run("run", mode)
    assert done.code == 0, done.err
    assert done.json["complete"]
    assert not bench.file("run", "store.db").exists()
    whole, resumed = (bench.file(name, "results.jsonl") for name in ("whole", "run"))
    assert whole.read_bytes() == resumed.read_bytes()


def stop_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Press Ctrl-C before the next question."""
    from memrecall.evaluation.runs import RunFolder

    written = RunFolder.append

    def append(self: RunFolder, *arguments: Any) -> None:
        nonlocal count
        if count == 0:
            raise KeyboardInterrupt
        count -= 1
        written(self, *arguments)

    monkeypatch.setattr(RunFolder, "append", append)


def prepare_environment(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(bench.folder / name.lower()))
    monkeypatch.setenv("MEMRECALL_EMBEDDER", "hash")
    use_few_resamples(monkeypatch)


@pytest.mark.concurrent
@pytest.mark.parametrize("sign", [signal.SIGINT, signal.SIGKILL], ids=["int", "kill"])
def test_killed_run_can_be_continued(many: Bench, sign: signal.Signals) -> None:
    files = ("--corpus", many.corpus, "--queries", many.queries, "--mode", "search")
    code = 130 if sign is signal.SIGINT else -sign
    with subprocess.Popen(
        [sys.executable, "-c", STOPPING, "eval", "run", *files, "--out", many.folder / "run"],
        stdout=subprocess.PIPE,
        text=True,
    ) as started:
        assert started.stdout is not None
        assert started.stdout.readline() == "asking\n"
        started.send_signal(sign)
        assert started.wait(LIMIT) == code
    written = many.file("run", "results.jsonl")
    assert len(read_lines(written)) == 3
    done = many.run("run")
    assert done.code == 0, done.err
    assert done.json["asked"] == 37
    many.run("whole")
    assert written.read_bytes() == many.file("whole", "results.jsonl").read_bytes()


# The command line, asking the fourth question for ever.
STOPPING = """
import asyncio, itertools
from memrecall.cli import main
from memrecall.evaluation.evaluators import SearchEvaluator
ask, numbers = SearchEvaluator.ask, itertools.count(1)
async def ask_or_wait(*given):
    if next(numbers) > 3:
        print("asking", flush=True)
        await asyncio.Event().wait()
    return await ask(*given)
SearchEvaluator.ask = ask_or_wait
main()
"""


def test_complete_run_asks_no_questions(bench: Bench) -> None:
    assert bench.run("run").json["asked"] == len(QUERIES)
    assert bench.run("run").json["asked"] == 0


def test_incomplete_result_line_is_asked_again(bench: Bench) -> None:
    bench.run("run")
    whole = bench.file("run", "results.jsonl").read_bytes()
    bench.file("run", "results.jsonl").write_bytes(whole[: len(whole) // 2])
    assert bench.run("run").code == 0
    assert bench.file("run", "results.jsonl").read_bytes() == whole
    assert len(read_lines(bench.file("run", "timings.jsonl"))) == len(QUERIES)


def test_interrupted_corpus_import_is_repeated(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memrecall.memory import Library

    async def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Library, "add_memories", interrupted)
        assert bench.run("run").code == 130
    assert not json.loads(bench.file("run", "summary.json").read_bytes())["imported"]
    assert bench.run("run").code == 0
    assert keys(results(bench, "run")["q4"])[0] == "tea"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--depth", 7), "depth = 50, not 7"),
        (("--max-questions", 2), "max_questions = None, not 2"),
    ],
)
def test_folder_of_run_with_other_settings_is_rejected(
    bench: Bench, more: tuple[object, ...], said: str
) -> None:
    bench.run("run")
    done = bench.run("run", "search", *more)
    assert done.code == 2
    assert said in done.err


def test_folder_with_other_data_or_files_is_rejected(bench: Bench) -> None:
    bench.run("run")
    assert "mode = search, not recall" in bench.run("run", "recall").err
    write_lines(bench.queries, QUERIES[:3])
    assert "queries_sha256" in bench.run("run").err
    assert bench.run("odd").code == 0
    bench.file("odd", "summary.json").unlink()
    assert "is not a run and not empty" in bench.run("odd").err


@MODES
def test_run_uses_given_database(bench: Bench, empty_location: str, mode: str) -> None:
    done = bench.run("given", mode, "--db", empty_location)
    assert done.code == 0, done.err
    assert bench.run("own", mode).code == 0
    given, own = (bench.file(name, "results.jsonl") for name in ("given", "own"))
    assert given.read_bytes() == own.read_bytes()
    again = bench.run("third", mode, "--db", empty_location)
    assert again.code == 2
    assert "is not empty" in again.err


def test_recorded_recalls_replay(bench: Bench) -> None:
    tapes = bench.folder / "tapes"
    refused = bench.run("recorded", "recall", "--record", tapes)
    assert (refused.code, "line 9: a memory without valid_from" in refused.err) == (2, True)
    write_lines(bench.corpus, [row for row in CORPUS if "memory_key" not in row])
    write_lines(bench.queries, [{**row, "evidence": []} for row in QUERIES])
    assert bench.run("recorded", "recall", "--record", tapes).code == 0
    assert len(list(tapes.iterdir())) == len(QUERIES)
    done = bench.run("replayed", "recall", "--replay", tapes)
    assert done.code == 0, done.err
    recorded, replayed = (bench.file(n, "results.jsonl") for n in ("recorded", "replayed"))
    assert recorded.read_bytes() == replayed.read_bytes()
    assert "is not empty" in bench.run("other", "recall", "--record", tapes).err
    (tapes / "q4.jsonl").unlink()
    assert "q4.jsonl" in bench.run("missing", "recall", "--replay", tapes).err


def test_contradictory_run_options_are_rejected(bench: Bench) -> None:
    assert "unknown mode 'guess'. Use search or recall" in bench.run("run", "guess").err
    both = ("--record", bench.folder / "a", "--replay", bench.folder / "b")
    assert "are mutually exclusive" in bench.run("run", "recall", *both).err
    assert "only for --mode recall" in bench.run("run", "search", *both[:2]).err
    assert bench.run("run", "search", "--depth", 0).code == 2
    assert not (bench.folder / "run").exists()


def test_invalid_input_file_leaves_no_folder(bench: Bench) -> None:
    write_lines(bench.corpus, [*CORPUS, "{"])
    done = bench.run("run")
    assert done.code == 2
    assert f"corpus.jsonl line {len(CORPUS) + 1}: not JSON" in done.err
    assert not (bench.folder / "run").exists()


def test_store_error_names_line(bench: Bench) -> None:
    lost = {"user_id": "lin", "memory_key": "x", "content": "x", "source_message_ids": ["nope"]}
    write_lines(bench.corpus, [*CORPUS, lost])
    done = bench.run("run")
    assert done.code == 2
    assert "source message 'nope' does not exist" in done.err
    assert f"lines {len(CORPUS) + 1} to {len(CORPUS) + 1}" in done.err
    write_lines(bench.corpus, CORPUS)
    assert bench.run("run").code == 0  # nothing had been answered: begun anew


def test_bare_run_name_is_in_runs_folder(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMRECALL_RUNS_DIR", str(bench.folder / "runs"))
    files = ("--corpus", bench.corpus, "--queries", bench.queries)
    done = bench.shell("eval", "run", *files, "--mode", "search", "--out", "mine")
    assert done.code == 0
    assert "recall@10" in done.out
    assert "1 question with evidence later" in done.out
    assert (bench.folder / "runs" / "mine" / "summary.json").exists()


class Found:
    """A search that gives probabilities."""

    def __init__(self) -> None:
        self.requests: list[Any] = []

    async def search(self, scope: Any, request: Any) -> Any:
        self.requests.append(request)
        hit = type("Hit", (), {"key": "m1", "score": 0.7, "probability": 0.25})
        return type("Page", (), {"results": (hit,)})


async def test_probabilities_are_stored_if_all_hits_have_them(tmp_path: Path) -> None:
    from memrecall.evaluation.corpus import read_corpus
    from memrecall.importers.jsonl import read_entry

    rows = [message("lin", "m1", "2025-01-05", "hello")]
    corpus = read_corpus(write_lines(tmp_path / "c.jsonl", rows), read_entry)
    subject: Any = Found()
    question = Question(query_id="q", user_id="lin", query="hello", evidence=("m1",))
    answer = await SearchEvaluator(subject, corpus, 5).ask(question)
    assert answer.probabilities == (0.25,)
    (request,) = subject.requests
    assert (request.mode, request.threshold, request.limit, request.until) == ("hybrid", 0, 5, None)
    assert request.now.isoformat() == "2025-01-05T09:01:00+00:00"


def test_concurrent_runs_cannot_share_folder(bench: Bench) -> None:
    bench.run("run")
    with RunFolder(bench.folder / "run").lock():
        second = bench.run("run", "search", "--max-questions", 3)
    assert second.code == 2
    assert "another `memrecall eval run` is writing into" in second.err
    assert bench.run("run").code == 0


def test_killed_run_is_listed_as_incomplete(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.run("runs/killed")
    summary = bench.folder / "runs" / "killed" / "summary.json"
    state = json.loads(summary.read_bytes())
    summary.write_text(json.dumps({**state, "complete": False, "counts": {}, "metrics": {}}))
    lines = bench.file("runs/killed", "results.jsonl").read_bytes().splitlines(keepends=True)
    bench.file("runs/killed", "results.jsonl").write_bytes(b"".join(lines[:4]))
    monkeypatch.setenv("MEMRECALL_RUNS_DIR", str(bench.folder / "runs"))
    (told,) = bench.shell("eval", "list", "--json").json["items"]
    assert (told["answered"], told["questions"], told["complete"]) == (4, 7, False)
    refused = bench.shell("eval", "baseline", "killed", "--out", bench.folder / "b.json")
    assert "not complete: 4 questions are answered" in refused.err
    page = bench.folder / "page.html"
    assert bench.shell("eval", "report", "killed", "--out", page).code == 0
    assert "4, incomplete" in page.read_text("utf-8")
