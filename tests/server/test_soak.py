"""The soak test: its checks notice what they are for, and a short run passes."""

import time
from pathlib import Path

import pytest

from benchmarks import soak
from benchmarks.faulty_embedder import FaultyEmbedder, faulty_embedder, vectors_of
from benchmarks.load import Response
from benchmarks.soak import Outcome, slope_per_minute
from benchmarks.soak_load import GRACE, Faults, Ledger
from memrecall.embedding import make_embedder
from tests.cases import check_each

BUSY = Response(503, "http/1.1 503 x\r\nretry-after: 1\r\n\r\n")


def ledger_of_ann() -> Ledger:
    """Return a ledger with two acknowledged messages of ann and one that got no response."""
    ledger = Ledger(unknown={"mk3x": "ann"})
    ledger.acknowledge("ann", ["mk1x", "mk2x"])
    return ledger


def test_ledger_finds_what_is_lost_duplicated_or_foreign() -> None:
    cases = {
        "": ("ann", ["mk1x: tea", "mk2x: jazz"]),
        "lost: mk2x": ("ann", ["mk1x: tea"]),
        "duplicated: mk2x": ("ann", ["mk1x", "mk2x", "mk2x"]),
        "duplicated: mk3x": ("ann", ["mk1x", "mk2x", "mk3x", "mk3x"]),
        "foreign: mk1x": ("bob", ["mk1x"]),
        "foreign: mk9x": ("ann", ["mk1x", "mk2x", "mk9x"]),
    }

    def check(expected: str) -> None:
        ledger = ledger_of_ann()
        ledger.compare(*cases[expected])
        kinds = [violation.partition(" of ")[0] for violation in ledger.violations]
        assert kinds == ([expected] if expected else [])

    check_each(cases, check)


def test_message_without_response_may_be_stored_or_not() -> None:
    for contents in (["mk1x", "mk2x"], ["mk1x", "mk2x", "mk3x"]):
        ledger = ledger_of_ann()
        ledger.compare("ann", contents)
        assert ledger.violations == []


def test_only_faults_explain_failures() -> None:
    now = time.monotonic()
    quiet, broken = (lambda _: False), (lambda _: True)
    running, over = [(now - 1, float("inf"))], [(now - 100, now - GRACE - 50)]
    cases = [
        (Faults(quiet), "post", BUSY, False),
        (Faults(broken), "post", BUSY, False),  # needs no embedder
        (Faults(broken), "semantic search", BUSY, True),
        (Faults(broken), "semantic search", Response(500, BUSY.head), False),
        (Faults(quiet, running), "post", BUSY, True),
        (Faults(quiet, running), "post", Response(500, BUSY.head), False),
        (Faults(quiet, running), "post", Response(503, "http/1.1 503 x\r\n\r\n"), False),
        (Faults(quiet, over), "post", BUSY, False),
    ]

    def check(case: tuple[Faults, str, Response, bool]) -> None:
        faults, action, response, expected = case
        assert faults.explain(action, response) is expected

    check_each(cases, check)


def test_growing_memory_and_an_idle_run_are_problems() -> None:
    ledger = Ledger()
    ledger.acknowledge("ann", ["mk1x"])
    flat = [(float(second), 300.0 + second % 2) for second in range(60)]
    growing = [(float(second), 300.0 + second) for second in range(60)]
    assert slope_per_minute(growing) == pytest.approx(60)
    cases = {
        "": Outcome("sqlite", ledger, flat, 0, 1, 60.0, 10.0),
        "memory": Outcome("sqlite", ledger, growing, 0, 1, 60.0, 10.0),
        "idle: nothing": Outcome("sqlite", Ledger(), flat, 0, 1, 60.0, 10.0),
        "idle: PostgreSQL": Outcome("postgresql", ledger, flat, 0, 1, 60.0, 10.0),
        "idle: the embedder": Outcome("sqlite", ledger, flat, 0, 0, 60.0, 10.0),
    }

    def check(expected: str) -> None:
        problems = cases[expected].problems()
        assert len(problems) == bool(expected)
        assert all(problem.startswith(expected) for problem in problems)

    check_each(cases, check)


@pytest.mark.concurrent
async def test_faulty_embedder_answers_and_fails() -> None:
    async with faulty_embedder(period=1000.0, fault=0.0) as server:
        embedder = make_embedder("openai:soak", base_url=server.url, api_key="")
        assert embedder is not None
        vectors = await embedder.embed(["tea", "茶"])
        assert vectors == pytest.approx(vectors_of(["tea", "茶"]), abs=1e-6)
        await embedder.close()
        assert (server.requests, server.failures) == (1, 0)
    assert FaultyEmbedder(period=1000.0, fault=1000.0).is_faulty()
    assert not FaultyEmbedder(period=1000.0, fault=1.0).is_faulty(before=GRACE)


@pytest.mark.long
@pytest.mark.concurrent
@pytest.mark.parametrize("database", ["sqlite", "postgresql"])
def test_short_soak_keeps_all_promises(database: str, tmp_path: Path) -> None:
    size = ["--seconds", "30", "--users", "100", "--large", "2000", "--clients", "8"]
    report = ["--json", str(tmp_path / "soak.json")]
    assert soak.main([*size, *report, "--database", database]) == 0
    assert (tmp_path / "soak.json").exists()
