"""A whole run in one call, as a notebook wants it."""

import platform
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import numpy as np

from memrecall.errors import InvalidArgument
from memrecall.evaluation.asking import Asker, RecallAsker, SearchAsker
from memrecall.evaluation.corpus import Corpus, Subject, check_labels
from memrecall.evaluation.folder import Plan, Run, RunFolder, State
from memrecall.evaluation.questions import QuestionSet
from memrecall.evaluation.runner import Runner
from memrecall.progress import Progress, shown
from memrecall.search.request import Mode
from memrecall.types import format_time
from memrecall.version import __version__


async def evaluate(
    library: Subject,
    corpus: Corpus,
    asked: QuestionSet,
    out: Path | str,
    *,
    mode: Literal["search", "recall"] = "search",
    retrieval: Mode = "hybrid",
    depth: int = 50,
    model_client: Any = None,
    stored: bool = False,
    progress: Progress = None,
) -> Run:
    """Store a corpus in an empty library, ask every question, and measure what comes back.

    `out` is the run's folder. Called again with the same, it goes on where it was stopped. With
    `stored` the library holds the corpus already, from a run with other settings. A recall is
    driven by the `model_client`, or else by the rules. `progress` is told how many questions were
    answered; without it, a notebook shows a bar.
    """
    if mode not in ("search", "recall"):
        raise InvalidArgument(f"mode {mode!r} is not known", hint="Use search or recall")
    check_labels(asked, corpus)
    plan = Plan(
        mode=mode,
        depth=depth,
        max_questions=None,
        corpus_sha256=corpus.sha256,
        queries_sha256=asked.sha256,
        embedder=library.settings.embedder,
        model=str(getattr(model_client, "model", "")) if mode == "recall" else "",
        tool_calls=library.settings.tool_calls,
        replayed=False,
        version=__version__,
        retrieval=retrieval,
    )
    folder = RunFolder(Path(out))
    with folder.held():
        state = folder.begin(new_state(plan, corpus.path, asked.path), asked.lines)
        runner = Runner(folder, state, corpus, asked)
        try:
            if folder.mend() < runner.questions:
                await _store(runner, library, stored, progress)
                asker = _asker(library, runner, model_client)
                with shown(progress, "asking", runner.questions, unit="questions") as advance:
                    await runner.ask_all(library, asker, advance)
        finally:
            run = runner.sum_up()
    return run


def new_state(plan: Plan, corpus: Path, queries: Path) -> State:
    """The state of a run that begins now."""
    return State(
        plan=plan,
        corpus=f"{corpus.resolve().parent.name}/{corpus.name}",
        queries=f"{queries.resolve().parent.name}/{queries.name}",
        started_at=format_time(datetime.now(UTC).replace(microsecond=0)),
        versions={
            "memrecall": __version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
        },
    )


def _asker(library: Subject, runner: Runner, model_client: Any) -> Asker:
    plan, corpus = runner.state.plan, runner.corpus
    if plan.mode == "search":
        return SearchAsker(library, corpus, plan.depth, plan.retrieval)
    from memrecall.agent import offline_client

    return RecallAsker(library, corpus, plan.depth, model_client or offline_client())


async def _store(runner: Runner, library: Subject, stored: bool, progress: Progress) -> None:
    if stored:
        await runner.use_stored(library)
        return
    # Whoever gave a function wants to be told of answers, not of lines.
    about_lines = None if callable(progress) else progress
    with shown(about_lines, "importing", runner.corpus.size, unit="lines") as advance:
        await runner.store_corpus(library, advance)
