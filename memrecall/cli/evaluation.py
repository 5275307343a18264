"""`eval`: ask labelled questions, measure, compare and check."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument
from memrecall.settings import load_settings

EXIT_REGRESSION = EXIT_WITHOUT_VECTORS = 1
_MODES = ("search", "recall")
_PLAN_OPTIONS = ("mode", "depth", "max_questions", "retrieval")
_LISTED_METRICS = ("recall@10", "f1")

RunName = Annotated[str, Argument(help="A run: its folder, or its name in the runs folder.")]

evaluation_commands = options.CommandGroup(
    help="Run evaluations, compare them, check for regressions."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `eval run`."""

    corpus: Annotated[Path, Option(help="Messages and memories, JSON lines.")]
    queries: Annotated[Path, Option(help="Labelled questions, JSON lines.")]
    out: Annotated[str, Option(help="The run's folder: a path, or a name in the runs folder.")]
    mode: Annotated[str, Option(help="search, or recall (the whole loop).")]
    depth: Annotated[int, Option(min=1, max=200, help="Keys stored per question.")] = 50
    max_questions: Annotated[int | None, Option(min=1, help="Ask only the first N questions.")] = (
        None
    )
    record: Annotated[
        Path | None, Option(file_okay=False, help="Record the model's calls into this folder.")
    ] = None
    replay: Annotated[
        Path | None,
        Option(exists=True, file_okay=False, help="Replay this folder instead of a model."),
    ] = None
    retrieval: Annotated[str, Option(help="With --mode search: keyword, semantic or hybrid.")] = (
        "hybrid"
    )
    db: Annotated[str | None, Option(help="An empty database; default: a temporary file.")] = None
    json: options.Json = False

    def check(self) -> None:
        """Reject contradictory options before any file is read."""
        from memrecall.search.request import MODES as RETRIEVALS

        if self.mode not in _MODES:
            raise InvalidArgument(f"unknown mode {self.mode!r}", hint=f"Use {' or '.join(_MODES)}")
        if self.retrieval not in RETRIEVALS:
            raise InvalidArgument(
                f"unknown retrieval {self.retrieval!r}", hint=f"Use {', '.join(RETRIEVALS)}"
            )
        if self.record and self.replay:
            raise InvalidArgument("--record and --replay are mutually exclusive", hint="Drop one")
        if self.mode == "search" and (self.record or self.replay):
            raise InvalidArgument(
                "--record and --replay require --mode recall", hint="Use --mode recall"
            )
        if self.mode == "recall" and self.retrieval != "hybrid":
            raise InvalidArgument(
                "--retrieval requires --mode search", hint="Drop --retrieval, or use --mode search"
            )


@evaluation_commands.command("run")
def run_evaluation(chosen: RunOptions) -> None:
    """Ask every question through the production code path and measure the results.

    An interrupted run continues when the same command is run again. Exit code 1: the embedder did
    not answer, so that questions were asked by words only.
    """
    chosen.check()
    folder, state, remaining = asyncio.run(_run(chosen))
    if chosen.json:
        output.print_json({"run": str(folder), "asked": remaining, **asdict(state)})
    else:
        _print_summary(folder, state)
        if not remaining:
            output.console().print(
                "the run was already complete; remove its folder to run it again"
            )
    if state.counts["without_vectors"]:
        raise typer.Exit(EXIT_WITHOUT_VECTORS)


async def _run(chosen: RunOptions) -> tuple[Path, Any, int]:
    """Start or continue a run; return its folder, its state and how many questions it asked."""
    from memrecall.evaluation.datasets import check_labels, read_corpus, read_questions
    from memrecall.evaluation.runner import CassetteFolder, begin_run, build_plan
    from memrecall.evaluation.runs import RunFolder
    from memrecall.importers.jsonl import read_entry
    from memrecall.memory import Library, client_of

    settings = load_settings().settings
    question_set = read_questions(chosen.queries, chosen.max_questions)
    corpus = read_corpus(chosen.corpus, read_entry)
    check_labels(question_set, corpus)
    folder = RunFolder(_run_path(chosen.out, settings))
    cassettes = None
    if path := chosen.replay or chosen.record:
        cassettes = CassetteFolder(path, replay=chosen.replay is not None)
        cassettes.prepare(corpus, resumed=folder.exists)
    database = chosen.db or str(folder.database)
    settings = replace(settings, db=database, durability="normal", snapshots=False)
    has_model = chosen.mode == "recall" and not chosen.replay
    choices = {name: getattr(chosen, name) for name in _PLAN_OPTIONS}
    choices |= {"model": settings.model if has_model else "", "replayed": bool(chosen.replay)}
    plan = build_plan(corpus, question_set, settings, **choices)
    with begin_run(folder, plan, corpus, question_set) as runner:
        remaining = runner.remaining()
        if remaining:
            client = client_of(settings) if has_model else None
            if client is None and chosen.record:
                raise InvalidArgument(
                    "--record needs a model: offline recalls make no model calls",
                    hint="Set MEMRECALL_MODEL, or drop --record",
                )
            async with AsyncExitStack() as stack:
                library = await stack.enter_async_context(await Library.open(settings))
                if client is not None:
                    stack.push_async_callback(client.close)
                await runner.run(library, client, cassettes, progress=True)
    return folder.path, runner.state, remaining


def _run_path(name: str, settings: Any) -> Path:
    """Return the folder of a run: a path, or a bare name in the runs folder."""
    is_path = any(separator in name for separator in "/\\") or name in (".", "..")
    return Path(name) if is_path else settings.data_folder() / "runs" / name


def _read_run(name: str) -> Any:
    """Read a run from the runs folder, or from its path."""
    from memrecall.evaluation.runs import RunFolder

    stored, local = RunFolder(_run_path(name, load_settings().settings)), RunFolder(Path(name))
    return (local if local.exists and not stored.exists else stored).read()


def _read_measured(name: str) -> Any:
    """Read a run; refuse one whose embedder did not answer."""
    run = _read_run(name)
    if run.without_vectors:
        number = output.count_noun(run.without_vectors, "question")
        raise InvalidArgument(
            f"{number} of {run.name} were asked by words only, because the embedder did not answer",
            hint="Remove its folder, and run it again with the embedder",
        )
    return run


def _print_summary(folder: Path, state: Any) -> None:
    from memrecall.evaluation.metrics import SUMMARY_METRICS

    terminal = output.console()
    counts, metrics = state.counts, state.metrics["overall"]
    answered = output.count_noun(counts["answered"], "question")
    terminal.print(f"{answered}, {counts['unanswerable']} without an answer: {folder}")
    for name in SUMMARY_METRICS[state.plan.mode]:
        if metric := metrics.get(name):
            terminal.print(
                f"{name:<20} [bold]{metric['value']:.3f}[/bold]  "
                f"[dim]{metric['low']:.3f} to {metric['high']:.3f}[/dim]"
            )
    p50, p95 = (1000 * state.metrics["latency"][name] for name in ("p50", "p95"))
    terminal.print(f"{'latency':<20} p50 {p50:.0f} ms, p95 {p95:.0f} ms")
    if counts["evidence_hidden_by_as_of"]:
        hidden = output.count_noun(counts["evidence_hidden_by_as_of"], "question")
        terminal.print(f"[yellow]{hidden} with evidence later than their as_of[/yellow]")
    if counts["without_vectors"]:
        number = output.count_noun(counts["without_vectors"], "question")
        terminal.print(f"[red]{number} asked by words only: this does not measure meaning[/red]")
    if counts["fallbacks"]:
        fallbacks = output.count_noun(counts["fallbacks"], "question")
        terminal.print(f"[yellow]{fallbacks} answered offline, because the model failed[/yellow]")


@evaluation_commands.command("compare")
def compare_command(
    first: RunName,
    second: RunName,
    json: options.Json = False,
) -> None:
    """Show what changed between two runs over the same questions."""
    from memrecall.evaluation.compare import OVERALL, compare
    from memrecall.evaluation.metrics import MAIN_METRICS

    before, after = _read_run(first), _read_run(second)
    changes = compare(before, after)
    by_category = {name for names in MAIN_METRICS.values() for name in names}
    shown = [c for c in changes if c.category == OVERALL or c.metric in by_category]
    fields = {"changes": [_change_fields(change) for change in changes]}
    options.SharedOptions(json=json).print_page(fields, _change_lines(shown))


def _change_fields(change: Any) -> dict[str, Any]:
    return {**asdict(change), "difference": change.difference, "sure": change.is_significant}


def _change_lines(changes: list[Any]) -> Iterator[str]:
    from memrecall.evaluation.metrics import format_value

    heads = ("questions", "before", "after", "difference")
    yield f"{'metric':<20}" + "".join(f"{head:>11}" for head in heads) + "  95 % interval"
    for change in changes:
        colour = ("green" if change.is_better else "red") if change.is_significant else "dim"
        values = f"{format_value(change.before):>11}{format_value(change.after):>11}"
        interval = f"{format_value(change.low, '+')} to {format_value(change.high, '+')}"
        # The category comes last, because it may be of any length.
        yield (
            f"{change.metric:<20}{change.questions:>11,}{values}"
            f"[{colour}]{format_value(change.difference, '+'):>11}[/{colour}]  {interval:<18} "
            f"{output.escape(change.category)}"
        )


@evaluation_commands.command("list")
def list_runs(json: options.Json = False) -> None:
    """List the runs in the runs folder, newest first."""
    from memrecall.evaluation.runs import find_runs

    folder = load_settings().settings.data_folder() / "runs"
    items, lines = [], []
    for path, state in find_runs(folder):
        metrics = state.metrics.get("overall", {})
        values = {name: metrics.get(name, {}).get("value") for name in _LISTED_METRICS}
        item = {
            "name": path.name,
            "started_at": state.started_at,
            "mode": state.plan.mode,
            "corpus": state.corpus,
            "questions": state.counts.get("questions", 0),
            "answered": state.counts.get("answered", 0),
            "complete": state.complete,
            **values,
        }
        shown = [f"{name} {value:.3f}" for name, value in values.items() if value is not None]
        total = "" if state.complete else f" of {item['questions']:,}"
        line = (
            f"{output.minute_of(state.started_at)}  [bold]{output.escape(path.name)}[/bold]"
            f"  {state.plan.mode}  {output.escape(state.corpus)}  "
            f"{item['answered']:,}{total} questions  " + "  ".join(shown)
        )
        items.append(item)
        lines.append(line)
    fields = {"folder": str(folder), "items": items}
    empty = f"no runs in {output.escape(str(folder))}"
    options.SharedOptions(json=json).print_page(fields, lines, empty)


@evaluation_commands.command("baseline")
def write_baseline(
    run: RunName,
    out: Annotated[Path, Option(help="JSON file to write.")],
    json: options.Json = False,
) -> None:
    """Write a run's main scores, question by question, for `eval check`."""
    from memrecall.evaluation.compare import render_baseline

    text = render_baseline(_read_measured(run))
    try:
        out.write_text(text, "utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot write {out}: {error.strerror}") from None
    fields = {"file": str(out), "bytes": len(text.encode())}
    text = f"written to {output.escape(str(out))}"
    options.SharedOptions(json=json).print_outcome(text, fields)


@evaluation_commands.command("check")
def check_run(
    run: RunName,
    baseline: Annotated[Path, Option(help="File of `eval baseline`.")],
    json: options.Json = False,
) -> None:
    """Compare a run with a baseline. Exit code 1: a main score is significantly lower."""
    from memrecall.evaluation.compare import compare_with_baseline, is_regression

    changes = compare_with_baseline(_read_measured(run), baseline)
    regressions = [change for change in changes if is_regression(change)]
    rows = [{**_change_fields(change), "fallen": is_regression(change)} for change in changes]
    names = ", ".join(f"{change.metric} ({change.category})" for change in regressions)
    outcome = f"[red]regressions[/red]: {output.escape(names)}" if names else "no regressions"
    fields = {"passed": not regressions, "changes": rows}
    options.SharedOptions(json=json).print_page(fields, [*_change_lines(changes), outcome])
    if regressions:
        raise typer.Exit(EXIT_REGRESSION)
