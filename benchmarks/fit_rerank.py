"""Fits the network that orders the first rows of a search.

    python benchmarks/fit_rerank.py --data FOLDER… --calibrate FOLDER… --work FOLDER

A folder is an evaluation set (docs/evaluation.md). The table shows how often the first row and one
of the first three are right, before and after, how often an update's current value is first, and
what the probability of the first row tells. Only `--out` and `--token-map` write what the package
uses. The same sets give the same bytes.

The package's weights are fitted to the authors A to F, J, K, P and R of fixtures/authored, to small
stores cut from their histories, to fixtures/eval, KdConv, FriendsQA, Molweni, LifeBench (all
Apache-2.0) and MADial-Bench (MIT). The authors G and H, and small stores cut from theirs, chose
features and calibrate; LoCoMo and CMRC 2018, whose licences restrict use, only check it.
"""

import argparse
import asyncio
import random
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
if not __package__:  # run as a file, not as a module
    sys.path[0] = str(REPOSITORY)

import numpy as np  # noqa: E402
import numpy.typing as npt  # noqa: E402
from threadpoolctl import threadpool_limits  # noqa: E402

from benchmarks.cut_stores import CUT_NAME, cut_stores, has_histories  # noqa: E402
from benchmarks.evaluation_sets import (  # noqa: E402
    WORK,
    EvaluationSet,
    add_folder_options,
    begin_search,
    check_names,
    open_library,
    read_evaluation_set,
    source_of,
    tell_progress,
)
from benchmarks.report import Figures, print_figures, say  # noqa: E402
from memrecall.embedding.embedders import LocalEmbedder  # noqa: E402
from memrecall.embedding.maps import read_table  # noqa: E402
from memrecall.evaluation.datasets import Question  # noqa: E402
from memrecall.evaluation.metrics import area_under_roc, calibration_error  # noqa: E402
from memrecall.memory import Library  # noqa: E402
from memrecall.search.engine import prepare_reranking  # noqa: E402
from memrecall.search.ranking.features import RankingQuery  # noqa: E402
from memrecall.search.ranking.ranker import rank  # noqa: E402
from memrecall.search.ranking.rerank import (  # noqa: E402
    RERANKED,
    RankingNetwork,
    RerankFeatures,
    can_rerank,
    rerank_features,
)
from memrecall.store import Reads  # noqa: E402

Floats = npt.NDArray[np.float64]
Weights = dict[str, Floats]

_SEED, _MAX_QUESTIONS = 1, 200  # of each set
_DIRECTIONS = 16  # of a row's vector
_HIDDEN, _NETWORKS = 24, 8  # networks from several beginnings, whose scores are averaged
_PULL, _RATE, _PASSES, _BATCH = 1e-2, 4e-3, 30, 64
_SET_WEIGHT = 0.5  # of a set that was not written for this project, or was cut from another one
_CALIBRATED = 3  # first rows that the probability is fitted to
_TOKEN_DIMENSIONS = 64


@dataclass(frozen=True, slots=True)
class Example:
    """A question: the features of its first rows, and which are right."""

    features: RerankFeatures
    backwards: RerankFeatures  # as if time had run so
    right: npt.NDArray[np.bool_]
    wanted: int  # number of pieces of evidence, found or not
    category: str


async def read_examples(evaluation_set: EvaluationSet, work: Path) -> list[Example]:
    """Collect the features of a set's questions."""
    questions = list(evaluation_set.questions)
    if len(questions) > _MAX_QUESTIONS:
        questions = random.Random(_SEED).sample(questions, _MAX_QUESTIONS)
    examples = []
    async with open_library(evaluation_set, work) as library:
        await library.engine.load_embedder()
        for done, question in enumerate(questions, 1):
            examples.append(await _example(library, evaluation_set, question))
            tell_progress(evaluation_set.name, done, len(questions))
    return [example for example in examples if example is not None]


async def _example(
    library: Library, evaluation_set: EvaluationSet, question: Question
) -> Example | None:
    """Return a question as the network reads it; None if it is not asked."""
    search = await begin_search(library, evaluation_set.corpus, question)
    vector, _ = await library.engine.embed_request(search)
    noise = await library.engine.measure_noise(vector)
    query = RankingQuery(
        search.request, None, vector, search.version, search.now, search.zone, noise
    )
    assert isinstance(library.embedder, LocalEmbedder)
    tokens = library.embedder.token_vectors
    assert tokens is not None, "the embedder is loaded"
    async with library.cache.open(search.feed, search.user) as columns:
        assert columns is not None
        ranking = rank(columns, search.scope, query)
        if not can_rerank(ranking):
            return None

        def read(reads: Reads) -> tuple[list[int], dict[int, str]]:
            first, texts, _ = prepare_reranking(library.store, search.scope, ranking, reads)
            return first, texts

        first, texts = await library.store.database.read_together(read)
        if not first:
            return None
        features, backwards = (
            rerank_features(ranking, first, texts, tokens, is_reversed)
            for is_reversed in (False, True)
        )
        keys = [columns.table.keys[row] for row in ranking.rows[first].tolist()]
    right = np.array([key in question.evidence for key in keys], dtype=np.bool_)
    return Example(features, backwards, right, len(question.evidence), question.category or "")


class Batch:
    """Examples as arrays of equal size; the last target is "none of them"."""

    def __init__(self, examples: Sequence[Example], weights: Mapping[str, Floats]) -> None:
        width = len(weights["row_mean"])
        self.rows = np.zeros((len(examples), RERANKED, width))
        self.query = np.stack([example.features.query for example in examples]).astype(np.float64)
        self.is_row = np.zeros((len(examples), RERANKED), dtype=np.bool_)
        self.target = np.zeros((len(examples), RERANKED + 1))
        for at, example in enumerate(examples):
            count = len(example.right)
            inputs = _inputs(example, weights) - weights["row_mean"]
            self.rows[at, :count] = inputs / weights["row_spread"]
            self.is_row[at, :count] = True
            if example.right.any():
                self.target[at, :count] = example.right / example.right.sum()
            else:
                self.target[at, RERANKED] = 1.0
        self.query = (self.query - weights["query_mean"]) / weights["query_spread"]


def _inputs(example: Example, weights: Mapping[str, Floats]) -> Floats:
    meaning = (example.features.vectors - weights["centre"]) @ weights["directions"]
    return np.hstack([example.features.rows, meaning])


def measure_scales(examples: Sequence[Example]) -> Weights:
    """Return the directions in which rows differ most, and the mean and spread of all inputs."""
    vectors = np.concatenate([example.features.vectors for example in examples]).astype(np.float64)
    directions = np.linalg.eigh(np.cov(vectors.T))[1]
    weights = {"centre": vectors.mean(axis=0), "directions": directions[:, ::-1][:, :_DIRECTIONS]}
    rows = np.concatenate([_inputs(example, weights) for example in examples])
    for name, values in (("row", rows), ("query", np.stack([e.features.query for e in examples]))):
        weights[f"{name}_mean"] = values.mean(axis=0)
        weights[f"{name}_spread"] = values.std(axis=0) + 0.01
    return weights


def fit(sets: Mapping[str, Sequence[Example]], networks: int = _NETWORKS) -> Weights:
    """Return the weights that maximise the likelihood of the right rows, or of none."""
    examples, importance = [], []
    for name, given in sets.items():
        # Where evidence was not found among the first rows, nothing is to be learned.
        usable = [example for example in given if example.right.any() or not example.wanted]
        is_cut = name.endswith(CUT_NAME)
        is_own = source_of(name) in ("authored", "eval")
        weight = 1.0 if is_own and not is_cut else _SET_WEIGHT
        for example in usable:
            versions = _versions(example)
            examples += versions
            importance += [weight / len(usable) / len(versions)] * len(versions)
    scales = measure_scales(examples)
    batch = Batch(examples, scales)
    shares = np.array(importance) / np.mean(importance)
    with threadpool_limits(1, "blas"):
        trained = [_train(batch, shares, seed) for seed in range(networks)]
    return scales | _average(trained)


def _versions(example: Example) -> list[Example]:
    """Return an example as it is and with time reversed; of a change only as it is."""
    if example.category in ("update", "change", "seeming"):
        return [example]
    return [example, replace(example, features=example.backwards)]


def _average(networks: Sequence[Weights]) -> Weights:
    """Return one network whose scores are the mean of those of several."""
    count = len(networks)
    means = ("linear", "none", "none_bias")
    return {
        **{name: np.mean([n[name] for n in networks], axis=0) for name in means},
        **{name: np.hstack([n[name] for n in networks]) for name in ("inner", "inner_bias")},
        "outer": np.hstack([n["outer"] for n in networks]) / count,
    }


def _train(batch: Batch, shares: Floats, seed: int) -> Weights:
    chance = np.random.default_rng(seed)
    width, size = batch.rows.shape[2], batch.query.shape[1]
    inner = chance.normal(size=(width + size, _HIDDEN)) / np.sqrt(width + size)
    net: Weights = {"inner": inner, "linear": np.zeros(width), "none": np.zeros(size)}
    net |= {"inner_bias": np.zeros(_HIDDEN), "outer": np.zeros(_HIDDEN), "none_bias": np.zeros(1)}
    means = {name: np.zeros_like(value) for name, value in net.items()}
    squares = {name: np.zeros_like(value) for name, value in net.items()}
    steps = 0
    for done in range(_PASSES):
        order = chance.permutation(len(shares))
        for start in range(0, len(order), _BATCH):
            steps += 1
            rate = _RATE * (1 - done / _PASSES)
            slopes = _slopes(net, batch, order[start : start + _BATCH], shares)
            for name, slope in slopes.items():
                slope = slope + _PULL * net[name]
                means[name] += 0.1 * (slope - means[name])
                squares[name] += 0.001 * (slope**2 - squares[name])
                spread = np.sqrt(squares[name] / (1 - 0.999**steps)) + 1e-8
                net[name] = net[name] - rate * means[name] / (1 - 0.9**steps) / spread
    return net


def _slopes(net: Weights, batch: Batch, at: npt.NDArray[np.int64], shares: Floats) -> Weights:
    """Return the gradient of the loss for some examples."""
    rows, query, is_row = batch.rows[at], batch.query[at], batch.is_row[at]
    wide = np.broadcast_to(query[:, None], (*rows.shape[:2], query.shape[1]))
    inputs = np.concatenate([rows, wide], axis=2)
    hidden = np.tanh(inputs @ net["inner"] + net["inner_bias"])
    scores = np.where(is_row, rows @ net["linear"] + hidden @ net["outer"], -1e9)
    none = query @ net["none"] + net["none_bias"]
    odds = np.concatenate([scores, none[:, None]], axis=1)
    odds = np.exp(odds - odds.max(axis=1, keepdims=True))
    error = odds / odds.sum(axis=1, keepdims=True) - batch.target[at]
    error *= shares[at][:, None] / len(at)
    of_rows, of_none = error[:, :RERANKED] * is_row, error[:, RERANKED]
    back = of_rows[:, :, None] * net["outer"] * (1 - hidden * hidden)
    return {
        "linear": np.einsum("bi,bif->f", of_rows, rows),
        "outer": np.einsum("bi,bih->h", of_rows, hidden),
        "inner": np.einsum("bif,bih->fh", inputs, back),
        "inner_bias": back.sum(axis=(0, 1)),
        "none": of_none @ query,
        "none_bias": of_none.sum(keepdims=True),
    }


def fit_answers(sets: Mapping[str, Sequence[Example]]) -> Weights:
    """Return the weights of the probability that there is an answer.

    The network is too sure about what it was fitted to: each half of the sets is read by a network
    that was fitted to the other half.
    """
    names = sorted(sets)
    inputs, truth = [], []
    for half in (names[::2], names[1::2]):
        others = {name: sets[name] for name in names if name not in half}
        network = RankingNetwork(pack(fit(others, networks=2)))
        for example in (example for name in half for example in sets[name]):
            if example.right.any() or not example.wanted:
                shares = network.shares(example.features)
                inputs.append(network.answer_features(example.features, shares))
                truth.append(float(example.wanted > 0))
    values = np.array(inputs)
    mean, spread = values.mean(axis=0), values.std(axis=0) + 1e-6
    point = _fit_odds((values - mean) / spread, np.array(truth))
    return {
        "answer_mean": mean,
        "answer_spread": spread,
        "answer": point[:-1],
        "answer_bias": point[-1:],
    }


def fit_chances(examples: Sequence[Example], weights: Mapping[str, Floats]) -> Floats:
    """Return the weights that turn the shares of the first rows into probabilities."""
    network = RankingNetwork(pack(weights))
    chances, right = [], []
    for example in examples:
        shares = network.shares(example.features)
        first = np.argsort(-shares, kind="stable")[:_CALIBRATED]
        answered = network.answer_share(example.features, shares)
        chances += (answered * shares[first] / shares.sum()).tolist()
        right += example.right[first].tolist()
    given = np.clip(np.array(chances), 1e-6, 1 - 1e-6)
    odds = np.log(given / (1 - given))
    return _fit_odds(odds[:, None], np.array(right, dtype=np.float64), penalty=0.0)


def _fit_odds(inputs: Floats, truth: Floats, penalty: float = 1.0) -> Floats:
    """Return the weights of a logistic regression by Newton's method, the bias last."""
    inputs = np.column_stack([inputs, np.ones(len(inputs))])
    pull = np.append(np.full(inputs.shape[1] - 1, penalty), 0.0)
    point = np.zeros(inputs.shape[1])
    for _ in range(25):
        chance = 1 / (1 + np.exp(-inputs @ point))
        curvature = (inputs * (chance * (1 - chance))[:, None]).T @ inputs + np.diag(pull)
        point -= np.linalg.solve(curvature, inputs.T @ (chance - truth) + pull * point)
    return point


def pack(weights: Mapping[str, Floats]) -> dict[str, npt.NDArray[np.float32]]:
    """Return weights as the package stores them."""
    return {name: np.asarray(value, dtype=np.float32) for name, value in weights.items()}


def judge(examples: Sequence[Example], network: RankingNetwork) -> dict[str, float]:
    """Return how good the order is before and after, and what the probability tells."""
    figures: dict[str, list[float]] = {
        name: [] for name in ("first before", "three before", "first", "three", "update")
    }
    chances, right = [], []
    for example in examples:
        shares = network.shares(example.features)
        ordered = example.right[np.argsort(-shares, kind="stable")]
        chances.append(float(network.chances(example.features, shares).max(initial=0)))
        right.append(float(ordered[:1].any()))
        if example.wanted:
            figures["first before"].append(float(example.right[:1].any()))
            figures["three before"].append(float(example.right[:3].any()))
            figures["first"].append(float(ordered[:1].any()))
            figures["three"].append(float(ordered[:3].any()))
            if example.category in ("update", "change", "seeming"):
                figures["update"].append(float(ordered[:1].any()))
    result = {name: float(np.mean(values)) for name, values in figures.items() if values}
    pair = np.array(chances), np.array(right)
    return result | {"auroc": area_under_roc(*pair), "ece": calibration_error(*pair)}


def make_token_map(embedder: LocalEmbedder) -> dict[str, npt.NDArray[np.float16]]:
    """Return the directions in which the tokens of the model's table differ most."""
    tokens = embedder.token_vectors
    assert tokens is not None, "the embedder is loaded"
    scores = np.array(tokens.encoder._tokenizer._scores)
    # Damped, so that a few frequent tokens do not decide; control tokens have a score of 0.
    share = np.where(scores == 0, 0, np.exp(np.clip(scores, -25, 0))) ** 0.5
    share /= share.sum()
    mean, square = np.zeros(512), np.zeros((512, 512))
    for ids in np.array_split(np.arange(len(scores)), 16):
        rows = read_table(tokens.encoder._model, ids)
        mean += share[ids] @ rows
        square += (rows * share[ids][:, None]).T @ rows
    spread, directions = np.linalg.eigh(square - np.outer(mean, mean))
    largest = slice(-1, -_TOKEN_DIMENSIONS - 1, -1)
    matrix = directions[:, largest] / spread[largest] ** 0.25
    return {"matrix": matrix.astype(np.float16), "centre": mean.astype(np.float16)}


async def study(options: argparse.Namespace) -> tuple[Weights, Figures]:
    """Read all sets, fit to those of `--data` and small stores cut from them, and judge all."""
    folders, others = (
        [*given, *_small_stores(given, options.work)] for given in (options.data, options.calibrate)
    )
    sets = {
        folder.name: await read_examples(read_evaluation_set(folder), options.work)
        for folder in [*folders, *others, *options.validate]
    }
    say(f"fitting to {', '.join(folder.name for folder in folders)}")
    fitted = {folder.name: sets[folder.name] for folder in folders}
    weights = fit(fitted) | fit_answers(fitted)
    # To others: the network is too sure about what it was fitted to.
    unseen = [example for folder in others for example in sets[folder.name]]
    weights["chance"] = fit_chances(unseen, weights)
    network = RankingNetwork(pack(weights))
    return weights, {name: judge(given, network) for name, given in sets.items()}


def _small_stores(folders: Sequence[Path], work: Path) -> list[Path]:
    """Cut small stores from the authors' histories among some sets."""
    authored = (folder for folder in folders if source_of(folder.name) == "authored")
    return [cut_stores(folder, work) for folder in authored if has_histories(folder)]


def _read_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_folder_options(
        parser,
        data="sets to fit to",
        calibrate="sets to fit the probabilities to",
        validate="sets to check on",
    )
    parser.add_argument("--work", type=Path, default=WORK, help="where imported sets are kept")
    for option, what in (("--out", "weights"), ("--token-map", "token map")):
        parser.add_argument(option, type=Path, metavar="FILE", help=f"write the {what} there")
    options = parser.parse_args()
    check_names(parser, [*options.data, *options.calibrate, *options.validate])
    return options


def main() -> None:
    """Fit, print the tables, write the files."""
    options = _read_options()
    options.work.mkdir(parents=True, exist_ok=True)
    if options.token_map is not None:
        asyncio.run((embedder := LocalEmbedder()).load())
        np.savez(options.token_map, allow_pickle=False, **make_token_map(embedder))
    weights, figures = asyncio.run(study(options))
    print_figures("order", figures)
    if options.out:
        np.savez(options.out, allow_pickle=False, **pack(weights))


if __name__ == "__main__":
    main()
