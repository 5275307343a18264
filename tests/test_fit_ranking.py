"""The script that fits the ranking: its features equal the search's, and its fits converge."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.fit_ranking import leave_one_out, study_calibration, study_parts, study_ranking
from benchmarks.ranking_evidence import Example, LabelledSet, read_set
from benchmarks.ranking_fits import (
    Coefficients,
    Floats,
    Results,
    fit_calibration,
    fit_weights,
    judge,
    minimise,
    recall,
)
from memrecall.evaluation.corpus import read_corpus
from memrecall.evaluation.evaluators import SearchEvaluator
from memrecall.evaluation.questions import read_questions
from memrecall.importers.jsonl import read_entry
from memrecall.memory import Library
from memrecall.search.ranking import calibration
from memrecall.search.ranking.scores import FEATURES, HYBRID
from memrecall.settings import Settings

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "eval"
QUERIES_PER_USER = 12


def invented_set(name: str, seed: int, questions: int = 120, rows: int = 60) -> LabelledSet:
    """Return questions with answers drawn by a softmax over known weights."""
    random = np.random.default_rng(seed)
    examples = []
    for _ in range(questions):
        words, meaning = random.normal(size=(2, rows)).astype(np.float32)
        time = (random.random(rows) < 0.1).astype(np.float32)
        zeros = np.zeros(rows, dtype=np.float32)
        odds = np.exp(1.5 * words + 0.5 * meaning + 2 * time)
        right = np.zeros(rows, dtype=np.bool_)
        right[random.choice(rows, p=odds / odds.sum())] = True
        features = {"lexical": words, "semantic": meaning, "time": time}
        evidence = dict.fromkeys(FEATURES, zeros) | features
        examples.append(Example(evidence, tuple(map(str, range(rows))), right, 1))
    return LabelledSet(name, tuple(examples))


INVENTED = [invented_set("one", 1), invented_set("two", 2), invented_set("three", 3)]


def test_fit_recovers_generating_weights() -> None:
    weights_fit = fit_weights(INVENTED)
    weights = [weights_fit.lexical, weights_fit.semantic, weights_fit.time]
    assert weights == pytest.approx([1.5, 0.5, 2.0], abs=0.3)
    assert weights_fit.voice == HYBRID.voice  # not fitted
    assert weights_fit.bias == HYBRID.bias
    assert fit_weights(INVENTED) == weights_fit
    new_set = invented_set("new", 4)
    worse_weights = replace(weights_fit, lexical=-1.0)
    assert recall(new_set, weights_fit) > recall(new_set, worse_weights)


def test_sets_have_equal_weight() -> None:
    first, two, _ = INVENTED
    doubled = LabelledSet("one again", first.examples * 2)
    single, doubled_weights = fit_weights([first, two]), fit_weights([doubled, two])
    assert doubled_weights.lexical == pytest.approx(single.lexical, abs=1e-6)


def test_fitted_calibration_is_accurate() -> None:
    results = [Results.of(labelled) for labelled in INVENTED]
    calibration = fit_calibration(results)
    figures = judge(Results.of(invented_set("new", 5)), calibration)
    assert figures["ece"] < 0.03
    assert figures["brier_skill"] > 0
    assert 0 <= figures["kept@0.5"] <= 1
    assert fit_calibration(results) == calibration


def test_probabilities_match_search() -> None:
    committed = Coefficients(
        calibration.SHARE, calibration.LONE, calibration.TIMED, calibration.BIAS
    )
    for example in INVENTED[0].examples[:10]:
        scores, order = example.ranked(HYBRID)
        visible = np.ones(len(scores), dtype=np.bool_)
        parts = (example.evidence["lone"], example.evidence["time"])
        totals = calibration.calibrate(scores, visible, *parts)[order]
        expected = [calibration.probability(float(total)) for total in totals]
        results = Results.of(LabelledSet("one question", (example,)))
        chances = results.chances(committed)
        np.testing.assert_allclose(chances, expected[: len(chances)], atol=2e-4)


def test_minimise_halves_overshooting_steps() -> None:
    """Full steps towards the minimum of log cosh diverge from 3 on."""

    def log_cosh(point: Floats) -> tuple[float, Floats, Floats]:
        slope = np.tanh(point)
        return float(np.log(np.cosh(point[0]))), slope, np.diag(1 - slope**2)

    assert minimise(log_cosh, np.array([3.0])) == pytest.approx([0.0], abs=1e-6)


def test_leave_one_out() -> None:
    sets = [[1], [2], [3]]
    assert leave_one_out(sets, lambda training_sets: [*training_sets]) == [
        [[2], [3]],
        [[1], [3]],
        [[1], [2]],
    ]
    assert leave_one_out(sets[:1], lambda training_sets: [*training_sets]) == [[[1]]]


def test_tables_cover_all_sets_and_features() -> None:
    train, check = INVENTED[:2], INVENTED[2:]
    tables = study_ranking(train, check) | study_calibration(train, check) | study_parts(INVENTED)
    names = ["one", "two", "three"]
    assert list(tables["recall@10"]) == names
    assert list(tables["chances, fitted to the others"]) == names
    assert list(tables["coefficients"]) == ["share", "lone", "timed", "bias"]
    switched = tables["recall@10, one kind of evidence switched off"]
    assert switched["without lexical"]["one"] < switched["all"]["one"]
    assert "without cosine" not in switched  # its weight is zero
    json.dumps(tables, allow_nan=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data set with some questions of fixtures/eval."""
    lines = (FIXTURE / "queries.jsonl").read_text("utf-8").splitlines()
    users = ("dana", "fang-min")
    queries = [
        line
        for user in users
        for line in [line for line in lines if json.loads(line)["user_id"] == user][
            :QUERIES_PER_USER
        ]
    ]
    messages = [
        line
        for line in (FIXTURE / "corpus.jsonl").read_text("utf-8").splitlines()
        if json.loads(line)["user_id"] in users
    ]
    data_folder = tmp_path / "small"
    data_folder.mkdir()
    (data_folder / "queries.jsonl").write_text("\n".join(queries), "utf-8")
    (data_folder / "corpus.jsonl").write_text("\n".join(messages), "utf-8")
    return data_folder


def only_store(folder: Path) -> Path:
    (store,) = folder.glob("small-*.db")
    return store


async def test_candidates_rank_like_search(folder: Path, tmp_path: Path) -> None:
    labelled = await read_set(folder, tmp_path, embedder="hash")
    questions = read_questions(folder / "queries.jsonl").questions
    corpus = read_corpus(folder / "corpus.jsonl", read_entry)
    settings = Settings(db=str(only_store(tmp_path)), embedder="hash", snapshots=False)
    async with await Library.open(settings) as library:
        evaluator = SearchEvaluator(library, corpus, depth=20)
        for question, example in zip(questions, labelled.examples, strict=True):
            answer = await evaluator.ask(question)
            _, order = example.ranked(HYBRID)
            assert [example.keys[at] for at in order[:20]] == answer.keys
            assert example.wanted == len(question.evidence)


async def test_database_is_reused_and_categories_can_be_excluded(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = await read_set(folder, tmp_path, embedder="hash")
    assert "lines to import" in capsys.readouterr().err
    category = read_questions(folder / "queries.jsonl").questions[0].category
    second = await read_set(folder, tmp_path, embedder="hash", left_out=[category])
    assert "already stored" in capsys.readouterr().err
    assert 0 < len(second.examples) < len(first.examples)
    assert second.examples[-1].keys == first.examples[-1].keys
