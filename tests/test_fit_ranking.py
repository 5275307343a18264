"""The script that fits the ranking: its features equal the search's, and its fits converge."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.calibration_fits import (
    COMMITTED,
    CalibrationSet,
    Outcome,
    fit_calibration,
    judge,
    leave_out,
)
from benchmarks.evaluation_sets import map_path, read_evaluation_set
from benchmarks.fit_ranking import load_map, study_calibration, study_parts, study_ranking
from benchmarks.ranking_evidence import Example, LabelledSet, foreign_questions, read_set
from benchmarks.ranking_fits import Floats, fit_weights, minimise, recall
from benchmarks.report import write_figures
from memrecall.embedding.query_map import QueryMap
from memrecall.evaluation.corpus import read_corpus
from memrecall.evaluation.evaluators import SearchEvaluator
from memrecall.evaluation.questions import read_questions
from memrecall.importers.jsonl import read_entry
from memrecall.memory import Library
from memrecall.search import engine
from memrecall.search.ranking import calibration
from memrecall.search.ranking.calibration import QuerySupport
from memrecall.search.ranking.scores import FEATURES, HYBRID
from memrecall.settings import Settings

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "eval"
QUERIES_PER_USER = 12


def invented_set(name: str, seed: int, questions: int = 120, rows: int = 60) -> LabelledSet:
    """Return questions with answers drawn by a softmax over known weights, and foreign ones."""
    random = np.random.default_rng(seed)
    own = [invented_example(random, name, rows) for _ in range(questions)]
    foreign = [invented_example(random, "elsewhere", rows, wanted=0) for _ in range(questions // 2)]
    return LabelledSet(name, tuple(own), tuple(foreign))


def invented_example(
    random: np.random.Generator, source: str, rows: int, wanted: int = 1
) -> Example:
    words, meaning = random.normal(size=(2, rows)).astype(np.float32)
    time = (random.random(rows) < 0.1).astype(np.float32)
    zeros = np.zeros(rows, dtype=np.float32)
    odds = np.exp(1.5 * words + 0.5 * meaning + 2 * time)
    right = np.zeros(rows, dtype=np.bool_)
    right[random.choice(rows, p=odds / odds.sum())] = bool(wanted)
    features = {"lexical": words, "semantic": meaning, "time": time, "cosine": meaning / 5}
    evidence = dict.fromkeys(FEATURES, zeros) | features
    known = float(np.clip(random.normal(0.8 if wanted else 0.4, 0.2), 0, 1))
    significance = float(random.normal(6 if wanted else 4))
    support = QuerySupport(known, known / 2, significance, 5, rows)
    keys = tuple(map(str, range(rows)))
    return Example(evidence, words, keys, right, wanted, support, source)


INVENTED = [invented_set("one", 1), invented_set("two", 2), invented_set("three", 3)]


def test_fit_recovers_generating_weights() -> None:
    weights_fit = fit_weights(INVENTED)
    weights = [weights_fit.lexical, weights_fit.semantic, weights_fit.time]
    assert weights == pytest.approx([1.5, 0.5, 2.0], abs=0.3)
    assert weights_fit.lone == HYBRID.lone  # not fitted
    assert weights_fit.voice == pytest.approx(0)  # fitted, and no row has it
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
    sets = [CalibrationSet.of(labelled) for labelled in INVENTED]
    weights = fit_calibration(sets)
    figures = judge(CalibrationSet.of(invented_set("new", 5)), weights)
    assert figures["ece"] < 0.03
    assert figures["auroc"] > 0.85
    assert figures["foreign<0.5"] > 0.6
    assert figures["kept@0.5"] > 0.6
    assert fit_calibration(sets) == weights
    assert weights.answer.known > 0
    assert weights.answer.significance > 0


def test_calibration_matches_search() -> None:
    for example in (*INVENTED[0].examples[:5], *INVENTED[0].foreign[:5]):
        scores, order = example.ranked(HYBRID)
        visible = np.ones(len(scores), dtype=np.bool_)
        expected = calibration.calibrate(scores, visible, example.evidence, example.support)
        outcome = Outcome.of(example)
        first = order[: calibration.RIVALS]
        for values, same in (
            (outcome.probability(COMMITTED), expected.probability),
            (outcome.relevance(COMMITTED), expected.relevance),
        ):
            np.testing.assert_allclose(values, same[first], atol=2e-4)


def test_left_out_source_gives_no_questions() -> None:
    sets = [CalibrationSet.of(labelled) for labelled in INVENTED]
    assert [kept.name for kept in leave_out(sets, "one")] == ["two", "three"]
    assert not any(kept.foreign for kept in leave_out(sets, "elsewhere"))
    assert all(kept.foreign for kept in sets)


def test_minimise_halves_overshooting_steps() -> None:
    """Full steps towards the minimum of log cosh diverge from 3 on."""

    def log_cosh(point: Floats) -> tuple[float, Floats, Floats]:
        slope = np.tanh(point)
        return float(np.log(np.cosh(point[0]))), slope, np.diag(1 - slope**2)

    assert minimise(log_cosh, np.array([3.0])) == pytest.approx([0.0], abs=1e-6)


def test_tables_cover_all_sets_and_features(tmp_path: Path) -> None:
    train, check = INVENTED[:2], INVENTED[2:]
    tables = study_ranking(train, check) | study_calibration(train, check) | study_parts(INVENTED)
    names = ["one", "two", "three"]
    assert list(tables["weights"]) == list(FEATURES)
    assert list(tables["recall@10"]) == list(tables["MRR"]) == names
    found = tables["recall@10"]["three"]
    assert found["fitted"] == found["fitted to the others"]  # no fit saw it
    assert found["fitted"] > found["words alone"] > found["meaning alone"]
    for fit in ("in the source", "fitted", "fitted to the others"):
        assert list(tables[f"calibration, {fit}"]) == names
    assert list(tables["answer weights"]) == list(calibration.AnswerWeights._fields)
    assert list(tables["row weights"]) == list(calibration.RowWeights._fields)
    switched = tables["recall@10, one kind of evidence switched off"]
    assert switched["without lexical"]["one"] < switched["all"]["one"]
    assert "without cosine" not in switched  # its weight is zero
    write_figures(tmp_path / "tables.json", tables)
    assert json.loads((tmp_path / "tables.json").read_text("utf-8")) == tables


def test_set_without_foreign_questions_has_no_auroc(tmp_path: Path) -> None:
    lonely = LabelledSet("lonely", INVENTED[0].examples)
    figures = judge(CalibrationSet.of(lonely), COMMITTED)
    assert np.isnan(figures["auroc"])
    write_figures(tmp_path / "tables.json", {"calibration": {"lonely": figures}})
    written = json.loads((tmp_path / "tables.json").read_text("utf-8"))
    assert written["calibration"]["lonely"]["auroc"] is None


def test_maps_never_saw_the_source(tmp_path: Path) -> None:
    everything, without = np.zeros((2, 2)), np.array([[0.0, 1.0], [0.0, 0.0]])
    np.save(map_path(tmp_path), everything)
    np.save(map_path(tmp_path, "one"), without)
    vector = np.array([0.0, 1.0], dtype=np.float32)
    assert load_map(tmp_path, "one").apply(vector)[0] > 0.5
    assert load_map(tmp_path, "two").apply(vector)[0] == 0


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


async def test_candidates_rank_like_search(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Updates are moved after the ranking, by rules that have no weights to fit.
    monkeypatch.setattr(engine, "put_updates_first", lambda query, hits: list(hits))
    labelled = await read_set(read_evaluation_set(folder), tmp_path, embedder="hash")
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
            relevance = Outcome.of(example).relevance(COMMITTED)[: len(answer.keys)]
            expected = np.array([score for _, score in answer.retrieved], dtype=np.float64)
            np.testing.assert_allclose(relevance, expected, atol=1e-3)


async def test_database_is_reused_and_categories_can_be_excluded(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    first = await read_set(read_evaluation_set(folder), tmp_path, embedder="hash")
    assert "lines to import" in capsys.readouterr().err
    category = read_questions(folder / "queries.jsonl").questions[0].category
    fewer = read_evaluation_set(folder, excluded=[category])
    second = await read_set(fewer, tmp_path, embedder="hash")
    assert "already stored" in capsys.readouterr().err
    assert 0 < len(second.examples) < len(first.examples)
    assert second.examples[-1].keys == first.examples[-1].keys


async def test_foreign_questions_and_given_map(folder: Path, tmp_path: Path) -> None:
    evaluation_set = read_evaluation_set(folder)
    other = replace(evaluation_set, name="other_set")
    assert not foreign_questions(evaluation_set, [evaluation_set])  # the same source
    asked = foreign_questions(evaluation_set, [other, evaluation_set], count=4)
    assert len(asked) == 4
    assert asked == foreign_questions(evaluation_set, [other], count=4)
    few = replace(evaluation_set, questions=evaluation_set.questions[:2])
    plain = await read_set(few, tmp_path, embedder="hash", foreign=asked)
    assert [example.source for example in plain.foreign] == ["other"] * 4
    assert not any(example.wanted or example.right.any() for example in plain.foreign)
    dimensions = await stored_dimensions(only_store(tmp_path))
    backwards = QueryMap(-2 * np.eye(dimensions))
    mapped = await read_set(few, tmp_path, embedder="hash", query_map=backwards)
    cosines = [labelled.examples[0].evidence["cosine"].max() for labelled in (plain, mapped)]
    assert cosines[1] < cosines[0]


async def stored_dimensions(database: Path) -> int:
    settings = Settings(db=str(database), embedder="hash", snapshots=False)
    async with await Library.open(settings) as library:
        return len(await library.engine.embed_query("anything"))


async def test_small_stores_have_their_own_foreign_questions(folder: Path, tmp_path: Path) -> None:
    evaluation_set = read_evaluation_set(folder)
    unanswered = evaluation_set.questions[1].model_copy(update={"evidence": ()})
    few = (evaluation_set.questions[0], unanswered)
    small = replace(evaluation_set, name="small_set", questions=few)
    assert not foreign_questions(small, [replace(evaluation_set, name="other")])
    labelled = await read_set(small, tmp_path, embedder="hash")
    assert (len(labelled.examples), len(labelled.foreign)) == (1, 1)
    assert labelled.source == "set"
