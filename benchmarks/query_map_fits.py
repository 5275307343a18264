"""Training of the map that moves a question's vector towards the vectors of its answers.

The loss is that of contrastive learning: among rows of the same user, a softmax over the cosines
should choose a row that answers. Random numbers have a fixed seed and BLAS has one thread, so that
the same questions give the same bytes.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from benchmarks.evaluation_sets import source_of
from memrecall.embedding.maps import QueryMap

Floats = npt.NDArray[np.float32]
Rows = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]
Apply = Callable[[Floats], Floats]

FIRST = 10
_SEED = 1
_MAX_QUESTIONS = 900  # of each set
_MAX_ANSWERS = 3  # of each question
_HARD, _RANDOM = 64, 64  # the nearest wrong rows, and any others
_MIN_WRONG = 5
_TEMPERATURE = np.float32(0.1)
_PULL = np.float32(0.1)  # towards no change
_RATE, _PASSES, _BATCH = 5e-4, 4, 64
# LifeBench lists the most rows as evidence, of which many answer only in part. Authors are many,
# and share habits.
_SOURCE_WEIGHT = {"lifebench": 0.3, "authored": 0.3}


@dataclass(frozen=True, slots=True)
class MapQuestion:
    """A question's vector before the map, and its user's rows."""

    vector: Floats
    rows: Floats  # one array for all questions of a user
    is_open: Mask
    right: Rows
    wanted: int  # number of pieces of evidence, open or not


@dataclass(frozen=True, slots=True)
class MapSet:
    """The questions of one set that have an answer."""

    name: str
    questions: tuple[MapQuestion, ...]


class Choice(NamedTuple):
    """A question and the rows to choose from: the first is right, all others are wrong."""

    question: MapQuestion
    rows: Rows
    weight: float


class LinearMap:
    """The identity plus a trained matrix."""

    def __init__(self, dimensions: int) -> None:
        self.parameters = [np.zeros((dimensions, dimensions), dtype=np.float32)]

    def forward(self, vectors: Floats) -> Floats:
        """Return mapped vectors, of any length."""
        return vectors + vectors @ self.parameters[0].T

    def gradients(self, vectors: Floats, slope: Floats) -> list[Floats]:
        """Return the gradient of the matrix."""
        return [slope.T @ vectors + _PULL * self.parameters[0]]

    @property
    def change(self) -> npt.NDArray[np.float16]:
        """The matrix minus the identity, as map files store it."""
        return self.parameters[0].astype(np.float16)


class Adam:
    """Adam's steps for some parameters, which are changed in place."""

    def __init__(self, parameters: Sequence[Floats]) -> None:
        self._parameters = parameters
        self._means = [np.zeros_like(parameter) for parameter in parameters]
        self._squares = [np.zeros_like(parameter) for parameter in parameters]
        self._steps = 0

    def step(self, gradients: Sequence[Floats]) -> None:
        """Change all parameters against their gradients."""
        self._steps += 1
        slots = zip(self._parameters, self._means, self._squares, gradients, strict=True)
        for parameter, mean, square, gradient in slots:
            mean += np.float32(0.1) * (gradient - mean)
            square += np.float32(0.001) * (gradient * gradient - square)
            spread = np.sqrt(square / np.float32(1 - 0.999**self._steps)) + np.float32(1e-8)
            parameter -= np.float32(_RATE / (1 - 0.9**self._steps)) * mean / spread


def fit_linear(sets: Sequence[MapSet], dimensions: int) -> npt.NDArray[np.float16]:
    """Return the change of a linear map; none without sets."""
    linear = LinearMap(dimensions)
    train(linear, sets)
    return linear.change


def train(query_map: LinearMap, sets: Sequence[MapSet]) -> None:
    """Train a map on the questions of some sets."""
    random = np.random.default_rng(_SEED)
    choices = [choice for map_set in sets for choice in _choices(map_set, random)]
    if not choices:
        return
    weights = np.array([choice.weight for choice in choices])
    weights = (weights / weights.mean()).astype(np.float32)
    adam = Adam(query_map.parameters)
    with threadpool_limits(1, "blas"):
        for _ in range(_PASSES):
            order = random.permutation(len(choices))
            for start in range(0, len(order), _BATCH):
                batch = order[start : start + _BATCH]
                adam.step(_gradients(query_map, [choices[at] for at in batch], weights[batch]))


def _choices(map_set: MapSet, random: np.random.Generator) -> list[Choice]:
    """Return what a set's questions choose from. Each question counts the same in its set."""
    order = random.permutation(len(map_set.questions))[:_MAX_QUESTIONS]
    total = _SOURCE_WEIGHT.get(source_of(map_set.name), 1.0)
    choices = []
    for at in order:
        question = map_set.questions[at]
        wrong = _wrong_rows(question, random)
        right = question.right
        if len(right) > _MAX_ANSWERS:
            right = random.choice(right, _MAX_ANSWERS, replace=False)
        if len(wrong):
            weight = total / len(order) / len(right)
            choices += [Choice(question, np.append(row, wrong), weight) for row in right]
    return choices


def _wrong_rows(question: MapQuestion, random: np.random.Generator) -> Rows:
    """Return near and random rows that do not answer; none if the user has too few."""
    is_wrong = question.is_open.copy()
    is_wrong[question.right] = False
    rows = np.flatnonzero(is_wrong)
    if len(rows) < _MIN_WRONG:
        return rows[:0]
    cosines = question.rows[rows] @ question.vector
    hard = rows[np.argsort(-cosines, kind="stable")[:_HARD]]
    # All choices have the same size, so a user with few rows has some of them twice.
    return np.append(hard, random.choice(rows, _HARD + _RANDOM - len(hard)))


def _gradients(query_map: LinearMap, choices: Sequence[Choice], weights: Floats) -> list[Floats]:
    vectors = np.stack([choice.question.vector for choice in choices])
    rows = np.stack([choice.question.rows[choice.rows] for choice in choices])
    mapped = query_map.forward(vectors)
    lengths = np.linalg.norm(mapped, axis=1, keepdims=True)
    units = mapped / lengths
    scores = np.matmul(rows, units[:, :, None])[:, :, 0] / _TEMPERATURE
    odds = np.exp(scores - scores.max(axis=1, keepdims=True))
    slope = odds / odds.sum(axis=1, keepdims=True)
    slope[:, 0] -= 1
    slope *= weights[:, None] / (_TEMPERATURE * np.float32(len(choices)))
    of_units = np.matmul(slope[:, None, :], rows)[:, 0, :]
    along = (of_units * units).sum(axis=1, keepdims=True)
    return query_map.gradients(vectors, (of_units - along * units) / lengths)


def apply_change(change: npt.NDArray[np.float16]) -> Apply:
    """Return the map of a file's content, as the search applies it."""
    return QueryMap(change).apply


def measure(map_set: MapSet, apply: Apply) -> dict[str, float]:
    """Return recall@10 and MRR by the cosine with mapped vectors alone."""
    recalls, ranks = [], []
    for question in map_set.questions:
        cosines = question.rows @ apply(question.vector)
        cosines[~question.is_open] = -np.inf
        first = np.argsort(-cosines, kind="stable")[:FIRST]
        recalls.append(np.isin(first, question.right).sum() / question.wanted)
        ranks.append(1 + np.count_nonzero(cosines > cosines[question.right].max()))
    return {
        "recall@10": float(np.mean(recalls)),
        "MRR": float(np.mean(1 / np.array(ranks))),
    }
