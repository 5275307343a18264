"""The script that fits the query map: it learns, repeats to the byte, and reads like a search."""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.evaluation_sets import fit_without, map_path, read_evaluation_set, source_of
from benchmarks.fit_query_map import MAP, NO_MAP, OTHERS, read_map_set, study_maps
from benchmarks.query_map_fits import (
    Floats,
    LinearMap,
    MapQuestion,
    MapSet,
    ResidualNetwork,
    TrainableMap,
    apply_change,
    fit_linear,
    measure,
)

FIXTURE = Path(__file__).resolve().parent.parent / "fixtures" / "eval"
DIMENSIONS = 16


def unit(vectors: npt.NDArray[np.float64]) -> Floats:
    lengths = np.linalg.norm(vectors, axis=-1, keepdims=True)
    scaled: Floats = (vectors / lengths).astype(np.float32)
    return scaled


# Questions are their answers, turned half-way: a linear map can turn them back.
TURN = np.linalg.qr(np.random.default_rng(9).normal(size=(DIMENSIONS, DIMENSIONS)))[0]


def invented_set(name: str, seed: int, questions: int = 100) -> MapSet:
    random = np.random.default_rng(seed)
    rows = unit(random.normal(size=(questions, DIMENSIONS)))
    noise = 0.1 * random.normal(size=rows.shape)
    vectors = unit(0.5 * rows + rows @ TURN + noise)
    is_open = np.ones(questions, dtype=np.bool_)
    return MapSet(
        name,
        tuple(
            MapQuestion(vectors[at], rows, is_open, np.array([at]), 1) for at in range(questions)
        ),
    )


INVENTED = [invented_set("one_zh", 1), invented_set("one_en", 2), invented_set("two", 3)]


def test_map_helps_questions_it_never_saw() -> None:
    new = invented_set("new", 4)
    change = fit_linear(INVENTED, DIMENSIONS)
    before, after = measure(new, lambda vector: vector), measure(new, apply_change(change))
    assert after["recall@10"] > before["recall@10"] + 0.05
    assert after["MRR"] > before["MRR"]


def test_same_sets_give_the_same_bytes(tmp_path: Path) -> None:
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
        study_maps(INVENTED, [], folder)
    names = sorted(path.name for path in folders[0].iterdir())
    assert names == ["query_map-without-one.npy", "query_map-without-two.npy", "query_map.npy"]
    for name in names:
        assert (folders[0] / name).read_bytes() == (folders[1] / name).read_bytes()
    change = np.load(map_path(folders[0]))
    assert (change.dtype, change.shape) == (np.float16, (DIMENSIONS, DIMENSIONS))


def test_map_of_the_others_never_saw_the_source(tmp_path: Path) -> None:
    study_maps(INVENTED, [], tmp_path)
    expected = fit_linear(INVENTED[2:], DIMENSIONS)
    np.testing.assert_array_equal(np.load(map_path(tmp_path, "one")), expected)


def test_tables_compare_all_sets_and_maps(tmp_path: Path) -> None:
    check = [invented_set("new", 4)]
    change, tables = study_maps(INVENTED, check, tmp_path, hidden=8)
    assert list(tables) == ["recall@10", "MRR"]
    recall = tables["recall@10"]
    assert list(recall) == ["one_zh", "one_en", "two", "new"]
    assert list(recall["new"]) == [NO_MAP, MAP, OTHERS, "network", "network of the others"]
    assert recall["new"][MAP] == recall["new"][OTHERS]  # no map saw it
    assert recall["new"][MAP] == measure(check[0], apply_change(change))["recall@10"]
    json.dumps(tables, allow_nan=False)


def test_sources_are_the_first_words() -> None:
    assert source_of("lifebench_zh_dev") == source_of("small_lifebench_en_dev") == "lifebench"
    assert fit_without(["a_zh", "a_en", "b"], list) == {"a": ["b"], "b": ["a_zh", "a_en"]}
    assert fit_without(["a"], list) == {"a": []}


def test_map_of_no_set_changes_nothing() -> None:
    assert not fit_linear([], DIMENSIONS).any()


@pytest.mark.parametrize("query_map", [LinearMap(3), ResidualNetwork(3, 2)])
def test_gradients_match_differences(query_map: TrainableMap) -> None:
    random = np.random.default_rng(5)
    vectors, slope = random.normal(size=(2, 4, 3)).astype(np.float32)
    last = query_map.parameters[-1]
    last[:] = random.normal(size=last.shape)

    def loss() -> float:
        pull = 0.05 * float(np.square(last).sum())
        return float((query_map.forward(vectors) * slope).sum()) + pull

    gradients = query_map.gradients(vectors, slope)
    for parameter, gradient in zip(query_map.parameters, gradients, strict=True):
        parameter[0, 1] += 0.01
        above = loss()
        parameter[0, 1] -= 0.02
        below = loss()
        parameter[0, 1] += 0.01
        assert gradient[0, 1] == pytest.approx((above - below) / 0.02, abs=0.01)


async def test_vectors_are_those_of_the_search(small_folder: Path, tmp_path: Path) -> None:
    evaluation_set = read_evaluation_set(small_folder)
    map_set = await read_map_set(evaluation_set, tmp_path, embedder="hash")
    answerable = [question for question in evaluation_set.questions if question.answerable]
    assert 0 < len(map_set.questions) <= len(answerable)
    for question in map_set.questions:
        assert np.linalg.norm(question.vector) == pytest.approx(1, abs=1e-3)
        lengths = np.linalg.norm(question.rows[question.is_open], axis=1)
        np.testing.assert_allclose(lengths, 1, atol=1e-2)
        assert question.is_open[question.right].all()
    assert measure(map_set, lambda vector: vector)["recall@10"] > 0.3


@pytest.fixture
def small_folder(tmp_path: Path) -> Path:
    """The first questions of one user of fixtures/eval."""
    folder = tmp_path / "few"
    folder.mkdir()
    for name, limit in (("queries.jsonl", 8), ("corpus.jsonl", None)):
        lines = (FIXTURE / name).read_text("utf-8").splitlines()
        kept = [line for line in lines if json.loads(line)["user_id"] == "dana"][:limit]
        (folder / name).write_text("\n".join(kept), "utf-8")
    return folder
