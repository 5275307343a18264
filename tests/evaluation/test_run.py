"""`memrecall eval run`: complete, interrupted, resumed and rejected runs."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from memrecall.embedding.embedders import HashEmbedder
from memrecall.errors import EmbedderFailed
from memrecall.evaluation.datasets import Question
from memrecall.evaluation.runner import Evaluator
from memrecall.evaluation.runs import RunFolder
from memrecall.testing import ScriptedClient, call
from tests.evaluation.conftest import EvaluationCli
from tests.evaluation.samples import CORPUS, QUERIES, read_lines, write_lines
from tests.waiting import LIMIT

MODES = pytest.mark.parametrize("mode", ["search", "recall"])


def results(evaluation: EvaluationCli, name: str) -> dict[str, Any]:
    return {row["query_id"]: row for row in read_lines(evaluation.file(name, "results.jsonl"))}


def keys(row: dict[str, Any]) -> list[str]:
    return [key for key, _ in row["retrieved"]]


@MODES
def test_equal_runs_write_equal_files(evaluation: EvaluationCli, mode: str) -> None:
    outcome = evaluation.run("first", mode)
    assert outcome.code == 0, outcome.err
    files = {path.name for path in (evaluation.folder / "first").iterdir()}
    assert files == {"queries.jsonl", "results.jsonl", "summary.json", "timings.jsonl"}
    assert list(results(evaluation, "first")) == [row["query_id"] for row in QUERIES]
    timings = read_lines(evaluation.file("first", "timings.jsonl"))
    assert [row["query_id"] for row in timings] == [row["query_id"] for row in QUERIES]
    assert all(row["seconds"] > 0 for row in timings)
    assert evaluation.run("second", mode).code == 0
    first, second = (evaluation.file(name, "results.jsonl") for name in ("first", "second"))
    assert first.read_bytes() == second.read_bytes()


def test_summary_has_plan_and_counts(evaluation: EvaluationCli) -> None:
    summary = evaluation.run("run", "search", "--depth", 3).json
    written_summary = json.loads(evaluation.file("run", "summary.json").read_bytes())
    assert summary.items() >= {k: v for k, v in written_summary.items() if k != "format"}.items()
    assert summary["complete"]
    assert summary["plan"]["depth"] == 3
    assert len(summary["plan"]["corpus_sha256"]) == 64
    assert summary["counts"] == {
        "messages": 8,
        "memories": 1,
        "users": 2,
        "questions": 7,
        "answered": 7,
        "unanswerable": 1,
        "evidence_hidden_by_as_of": 1,
        "fallbacks": 0,
        "without_vectors": 0,
    }
    assert summary["metrics"]["overall"]["recall@10"]["questions"] == 6
    assert "ece" in summary["metrics"]["overall"]  # the results have probabilities
    assert set(summary["metrics"]["categories"]) == {"fact", "name", "unanswerable"}
    assert "recall@10" not in summary["metrics"]["categories"]["unanswerable"]
    assert summary["metrics"]["latency"]["p50"] > 0
    rows = results(evaluation, "run")
    assert all(len(row["retrieved"]) <= 3 for row in rows.values())
    assert [keys(rows[name])[0] for name in ("q1", "q3", "q4")] == ["m1", "m3", "tea"]


@MODES
def test_run_without_vectors_is_no_measure_of_hybrid_search(
    evaluation: EvaluationCli, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    embed, stored = HashEmbedder.embed, [row["content"] for row in CORPUS]

    async def fail(self: HashEmbedder, texts: list[str]) -> Any:
        if not all(any(content in text for content in stored) for text in texts):
            raise EmbedderFailed("the embedder is gone")
        return await embed(self, texts)

    monkeypatch.setattr(HashEmbedder, "embed", fail)
    outcome = evaluation.run("run", mode)
    assert outcome.code == 1, outcome
    assert outcome.json["counts"]["without_vectors"] == 7
    baseline = evaluation.folder / "base.json"
    for command, option in (("baseline", "--out"), ("check", "--baseline")):
        refused = evaluation.call(command, "run", option, baseline)
        assert refused.code == 2
        assert "7 questions of run were asked by words only" in refused.err
    assert not baseline.exists()


@MODES
def test_rows_after_as_of_are_hidden(evaluation: EvaluationCli, mode: str) -> None:
    evaluation.run("run", mode)
    rows = results(evaluation, "run")
    assert keys(rows["q2"])[0] == "m2"
    assert not {"m3", "m4"} & set(keys(rows["q2"]))  # written after January
    assert not {"m2", "m3", "m4"} & set(keys(rows["q7"]))


def test_handed_off_keys_come_first(evaluation: EvaluationCli) -> None:
    evaluation.run("run", "recall")
    for row in results(evaluation, "run").values():
        handed_off = row["relevant_memory_keys"]
        assert keys(row)[: len(handed_off)] == handed_off
        others = [score for _, score in row["retrieved"][len(handed_off) :] if score is not None]
        assert others == sorted(others, reverse=True)
        assert row["tool_calls"] >= 1
        assert row["windows"][0] == 5
        assert not (row["abstained"] and handed_off)
    assert any(row["relevant_memory_keys"] for row in results(evaluation, "run").values())
    assert results(evaluation, "run")["q6"]["abstained"]  # it has no evidence


def test_ctrl_c_during_last_question_closes_database(
    evaluation: EvaluationCli, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    original = Evaluator.ask

    async def interrupt_last(self: Evaluator, question: Question) -> Any:
        result = await original(self, question)
        if question.query_id == QUERIES[-1]["query_id"]:
            signal.raise_signal(signal.SIGINT)  # the event loop cancels the task at its next await
        return result

    monkeypatch.setattr(Evaluator, "ask", interrupt_last)
    stopped = evaluation.run("run")
    assert (stopped.code, stopped.err) == (130, "stopped; run it again to continue\n")
    assert not [record for record in caplog.records if record.exc_info]
    assert evaluation.run("run").json["complete"]


@MODES
def test_interrupted_run_continues(
    evaluation: EvaluationCli, mode: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation.run("whole", mode)
    stop_after(3, monkeypatch)
    stopped = evaluation.run("run", mode)
    assert stopped.code == 130
    assert "run it again to continue" in stopped.err
    summary = json.loads(evaluation.file("run", "summary.json").read_bytes())
    assert (summary["complete"], summary["imported"]) == (False, True)
    assert summary["counts"]["answered"] == 3
    assert summary["metrics"]["overall"]
    assert evaluation.file("run", "store.db").exists()
    monkeypatch.undo()
    prepare_environment(evaluation, monkeypatch)
    outcome = evaluation.run("run", mode)
    assert outcome.code == 0, outcome.err
    assert outcome.json["complete"]
    assert not evaluation.file("run", "store.db").exists()
    whole, resumed = (evaluation.file(name, "results.jsonl") for name in ("whole", "run"))
    assert whole.read_bytes() == resumed.read_bytes()


def stop_after(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Simulate Ctrl-C before the next question."""
    from memrecall.evaluation.runs import RunFolder

    original = RunFolder.append

    def append(self: RunFolder, *arguments: Any) -> None:
        nonlocal count
        if count == 0:
            raise KeyboardInterrupt
        count -= 1
        original(self, *arguments)

    monkeypatch.setattr(RunFolder, "append", append)


def prepare_environment(evaluation: EvaluationCli, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("XDG_DATA_HOME", "XDG_CACHE_HOME", "XDG_CONFIG_HOME"):
        monkeypatch.setenv(name, str(evaluation.folder / name.lower()))
    monkeypatch.setenv("MEMRECALL_EMBEDDER", "hash")


@pytest.mark.service
@pytest.mark.concurrent
def test_killed_run_can_be_continued(large_evaluation: EvaluationCli) -> None:
    files = ("--corpus", large_evaluation.corpus, "--queries", large_evaluation.queries)
    options = ("--mode", "search", "--out", large_evaluation.folder / "run")
    with subprocess.Popen(
        [sys.executable, "-c", STUCK_PROGRAM, "eval", "run", *files, *options],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "asking\n"
        process.kill()
        process.wait(LIMIT)
    results_file = large_evaluation.file("run", "results.jsonl")
    assert len(read_lines(results_file)) == 3
    outcome = large_evaluation.run("run")
    assert outcome.code == 0, outcome.err
    assert outcome.json["asked"] == 37
    large_evaluation.run("whole")
    assert results_file.read_bytes() == large_evaluation.file("whole", "results.jsonl").read_bytes()


# The command line, stuck at the fourth question.
STUCK_PROGRAM = """
import asyncio, itertools
from memrecall.cli import main
from memrecall.evaluation.runner import Evaluator
ask, numbers = Evaluator.ask, itertools.count(1)
async def ask_or_wait(*given):
    if next(numbers) > 3:
        print("asking", flush=True)
        await asyncio.Event().wait()
    return await ask(*given)
Evaluator.ask = ask_or_wait
main()
"""


def test_incomplete_result_line_is_asked_again(evaluation: EvaluationCli) -> None:
    evaluation.run("run")
    whole = evaluation.file("run", "results.jsonl").read_bytes()
    evaluation.file("run", "results.jsonl").write_bytes(whole[: len(whole) // 2])
    assert evaluation.run("run").code == 0
    assert evaluation.file("run", "results.jsonl").read_bytes() == whole
    assert len(read_lines(evaluation.file("run", "timings.jsonl"))) == len(QUERIES)


def test_interrupted_corpus_import_is_repeated(
    evaluation: EvaluationCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    from memrecall.memory import Library

    async def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(Library, "add_memories", interrupted)
        assert evaluation.run("run").code == 130
    assert not json.loads(evaluation.file("run", "summary.json").read_bytes())["imported"]
    assert evaluation.run("run").code == 0
    assert keys(results(evaluation, "run")["q4"])[0] == "tea"


def test_folder_of_another_run_is_rejected(evaluation: EvaluationCli) -> None:
    evaluation.run("run")
    assert "mode = search, not recall" in evaluation.run("run", "recall").err
    assert "depth = 50, not 7" in evaluation.run("run", "search", "--depth", 7).err
    limited = evaluation.run("run", "search", "--max-questions", 2)
    assert (limited.code, "max_questions = None, not 2" in limited.err) == (2, True)
    write_lines(evaluation.queries, QUERIES[:3])
    assert "queries_sha256" in evaluation.run("run").err
    assert evaluation.run("odd").code == 0
    evaluation.file("odd", "summary.json").unlink()
    assert "is not a run and not empty" in evaluation.run("odd").err


@MODES
def test_run_uses_given_database(evaluation: EvaluationCli, empty_location: str, mode: str) -> None:
    outcome = evaluation.run("given", mode, "--db", empty_location)
    assert outcome.code == 0, outcome.err
    assert evaluation.run("own", mode).code == 0
    first, second = (evaluation.file(name, "results.jsonl") for name in ("given", "own"))
    assert first.read_bytes() == second.read_bytes()
    third = evaluation.run("third", mode, "--db", empty_location)
    assert third.code == 2
    assert "is not empty" in third.err


@pytest.fixture
def recording(evaluation: EvaluationCli, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The cassettes of the run `recorded`, which was interrupted after three questions."""
    cassettes = evaluation.folder / "tapes"
    search = call("search_memories", query="过敏 rent", min_relevance_score=0.0)
    nothing = call("handoff", reason="done", search_summary="nothing", confidence=0.0)
    client = ScriptedClient([search, nothing] * (len(QUERIES) + 1))  # the fourth is asked twice
    write_lines(evaluation.corpus, [row for row in CORPUS if "memory_key" not in row])
    write_lines(evaluation.queries, [{**row, "evidence": []} for row in QUERIES])
    with monkeypatch.context() as patch:
        patch.setattr("memrecall.memory.client_of", lambda settings: client)
        with monkeypatch.context() as interrupted:
            stop_after(3, interrupted)
            assert evaluation.run("recorded", "recall", "--record", cassettes).code == 130
        assert evaluation.run("recorded", "recall", "--record", cassettes).json["asked"] == 4
    return cassettes


def test_recorded_recalls_replay(evaluation: EvaluationCli, recording: Path) -> None:
    assert len(list(recording.iterdir())) == len(QUERIES)
    outcome = evaluation.run("replayed", "recall", "--replay", recording)
    assert outcome.code == 0, outcome.err
    assert outcome.json["plan"]["replayed"]
    rows = results(evaluation, "replayed").values()
    assert all((row["model_calls"], bool(row["retrieved"])) == (2, True) for row in rows)
    files = [evaluation.file(name, "results.jsonl") for name in ("recorded", "replayed")]
    assert files[0].read_bytes() == files[1].read_bytes()
    assert "replayed = True, not False" in evaluation.run("replayed", "recall").err


def test_replay_that_differs_is_an_error(evaluation: EvaluationCli, recording: Path) -> None:
    changed = [{**row, "evidence": [], "query": f"{row['query']}?"} for row in QUERIES]
    write_lines(evaluation.queries, changed)
    outcome = evaluation.run("changed", "recall", "--replay", recording)
    assert (outcome.code, "q1.jsonl differs in messages" in outcome.err) == (2, True)
    write_lines(evaluation.queries, [{**row, "evidence": []} for row in QUERIES])
    (recording / "q4.jsonl").unlink()
    assert "q4.jsonl" in evaluation.run("missing", "recall", "--replay", recording).err


def test_recording_that_cannot_replay_is_rejected(
    evaluation: EvaluationCli, recording: Path
) -> None:
    assert "is not empty" in evaluation.run("other", "recall", "--record", recording).err
    empty = ("recall", "--record", evaluation.folder / "empty")
    assert "--record needs a model" in evaluation.run("rules", *empty).err
    write_lines(evaluation.corpus, CORPUS)
    outcome = evaluation.run("undated", *empty)
    assert (outcome.code, "line 9: a memory without valid_from" in outcome.err) == (2, True)


@pytest.mark.parametrize("replayed", [True, False, None])
def test_runs_with_and_without_the_mark_replayed_are_read(
    evaluation: EvaluationCli, replayed: bool | None
) -> None:
    evaluation.run("run")
    summary = json.loads(evaluation.file("run", "summary.json").read_bytes())
    del summary["plan"]["replayed"]
    summary["plan"] |= {} if replayed is None else {"replayed": replayed, "without": []}
    evaluation.file("run", "summary.json").write_text(json.dumps(summary))
    assert RunFolder(evaluation.folder / "run").read().state.plan.replayed is bool(replayed)


def test_invalid_run_options_are_rejected(evaluation: EvaluationCli) -> None:
    assert "unknown mode 'guess'. Use search or recall" in evaluation.run("run", "guess").err
    options = ("--record", evaluation.folder / "tapes", "--replay", evaluation.folder)
    assert "are mutually exclusive" in evaluation.run("run", "recall", *options).err
    for kept in (options[:2], options[2:]):
        assert "require --mode recall" in evaluation.run("run", "search", *kept).err
    for wrong in ("--record", evaluation.corpus), ("--replay", evaluation.folder / "tapes"):
        assert evaluation.run("run", "recall", *wrong).code == 2
    assert evaluation.run("run", "search", "--depth", 0).code == 2
    assert not (evaluation.folder / "run").exists()


def test_invalid_input_file_leaves_no_folder(evaluation: EvaluationCli) -> None:
    write_lines(evaluation.corpus, [*CORPUS, "{"])
    outcome = evaluation.run("run")
    assert outcome.code == 2
    assert f"corpus.jsonl line {len(CORPUS) + 1}: not JSON" in outcome.err
    assert not (evaluation.folder / "run").exists()


def test_store_error_names_line(evaluation: EvaluationCli) -> None:
    lost = {"user_id": "lin", "memory_key": "x", "content": "x", "source_message_ids": ["nope"]}
    write_lines(evaluation.corpus, [*CORPUS, lost])
    outcome = evaluation.run("run")
    assert outcome.code == 2
    assert "source message 'nope' does not exist" in outcome.err
    assert f"lines {len(CORPUS) + 1} to {len(CORPUS) + 1}" in outcome.err
    write_lines(evaluation.corpus, CORPUS)
    assert evaluation.run("run").code == 0  # no question was answered, so the run starts again


def test_bare_run_name_is_in_runs_folder(
    evaluation: EvaluationCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMRECALL_DATA_DIR", str(evaluation.folder))
    files = ("--corpus", evaluation.corpus, "--queries", evaluation.queries)
    outcome = evaluation.shell("eval", "run", *files, "--mode", "search", "--out", "mine")
    assert outcome.code == 0
    assert "recall@10" in outcome.out
    assert "1 question with evidence later" in outcome.out
    assert (evaluation.folder / "runs" / "mine" / "summary.json").exists()


def test_concurrent_runs_cannot_share_folder(evaluation: EvaluationCli) -> None:
    evaluation.run("run")
    with RunFolder(evaluation.folder / "run").lock():
        second = evaluation.run("run", "search", "--max-questions", 3)
    assert second.code == 2
    assert "another `memrecall eval run` is writing into" in second.err
    assert evaluation.run("run").code == 0


def test_killed_run_is_listed_as_incomplete(
    evaluation: EvaluationCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluation.run("runs/killed")
    summary = evaluation.folder / "runs" / "killed" / "summary.json"
    state = json.loads(summary.read_bytes())
    summary.write_text(json.dumps({**state, "complete": False, "counts": {}, "metrics": {}}))
    lines = evaluation.file("runs/killed", "results.jsonl").read_bytes().splitlines(keepends=True)
    evaluation.file("runs/killed", "results.jsonl").write_bytes(b"".join(lines[:4]))
    monkeypatch.setenv("MEMRECALL_DATA_DIR", str(evaluation.folder))
    (item,) = evaluation.shell("eval", "list", "--json").json["items"]
    assert (item["answered"], item["questions"], item["complete"]) == (4, 7, False)
    rejected = evaluation.shell("eval", "baseline", "killed", "--out", evaluation.folder / "b.json")
    assert "not complete: 4 questions are answered" in rejected.err
