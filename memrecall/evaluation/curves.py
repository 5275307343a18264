"""The curves of a run: recall against k, calibration, and how long questions took."""

import numpy as np

from memrecall.evaluation.folder import Run
from memrecall.evaluation.metrics import judged_confidence, judged_results
from memrecall.evaluation.statistics import calibration_bins

DEEPEST = 50


def recall_by_depth(run: Run) -> list[float]:
    """The share of a question's evidence among the first 1, 2, … keys."""
    depth = min(run.state.plan.depth, DEEPEST)
    found = np.zeros((len(run.answers), depth))
    asked = [len(question.evidence) for question in run.questions]
    for at, (question, answer) in enumerate(zip(run.questions, run.answers, strict=True)):
        for place, key in enumerate(answer.keys[:depth]):
            found[at, place] = key in question.evidence
    counts = np.array(asked)
    known = counts > 0
    if not known.any():
        return [0.0] * depth
    shares = found[known].cumsum(axis=1) / counts[known, None]
    return [float(value) for value in shares.mean(axis=0)]


def calibration(run: Run) -> tuple[str, list[tuple[float, float, int]]]:
    """What was predicted, and in bins: the prediction, how often it came true, of how many."""
    pairs = list(zip(run.questions, run.answers, strict=True))
    if run.state.plan.mode == "recall":
        kind, (predicted, true) = "confidence", judged_confidence(pairs)
    elif all(answer.probabilities is not None for answer in run.answers):
        kind = "probability"
        predicted, true = judged_results(pairs, lambda answer: answer.probabilities or ())
    else:
        kind = "relevance score"
        predicted, true = judged_results(pairs, lambda answer: [s for _, s in answer.retrieved])
    known = ~np.isnan(predicted)
    return kind, calibration_bins(predicted[known], true[known])


def latency_shares(run: Run) -> list[tuple[float, float]]:
    """Milliseconds, and the share of the questions that took at most so long."""
    took = sorted(1000 * seconds for seconds in run.seconds)
    return [(ms, number / len(took)) for number, ms in enumerate(took, 1)]
