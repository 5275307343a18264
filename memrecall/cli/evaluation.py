"""`eval`: ask labelled questions, measure, compare, report, check."""

from contextlib import AsyncExitStack
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from memrecall import __version__
from memrecall.cli import options, output
from memrecall.errors import InvalidArgument
from memrecall.text_length import single_line

EXIT_FALLEN = 1
MODES = ("search", "recall")
_SHOWN = {
    "search": ("recall@1", "recall@5", "recall@10", "recall@20", "hit@10", "mrr", "ndcg@10"),
    "recall": ("f1", "precision", "recall", "recall@10", "abstention_accuracy", "auroc", "ece"),
}
_LONGEST_QUERY = 60

RunName = Annotated[str, typer.Argument(help="A run: its folder, or its name in the runs folder.")]

family = typer.Typer(help="Evaluation: run, compare, report, list, check, baseline.")


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.add_typer(family, name="eval")


@family.command("run")
def run(
    corpus: Annotated[Path, typer.Option("--corpus", help="Messages and memories, JSON lines.")],
    queries: Annotated[Path, typer.Option("--queries", help="Questions with evidence.")],
    out: Annotated[
        str, typer.Option("--out", help="The run's folder; a bare name lies in the runs folder.")
    ],
    mode: Annotated[str, typer.Option("--mode", help="search, or recall: the whole loop.")],
    depth: Annotated[
        int, typer.Option("--depth", min=1, max=200, help="Keys kept for each question.")
    ] = 50,
    max_questions: Annotated[
        int | None, typer.Option("--max-questions", min=1, help="Only the first so many.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write the model's calls into this folder.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", help="Answer from such a folder, without a model.")
    ] = None,
    retrieval: Annotated[
        str, typer.Option("--retrieval", help="How a search finds: keyword, semantic or hybrid.")
    ] = "hybrid",
    grow_window: Annotated[
        bool, typer.Option(help="Let a recall ask for more of the conversation.")
    ] = True,
    expand_queries: Annotated[
        bool, typer.Option(help="Let a recall search by other forms of the words too.")
    ] = True,
    db: Annotated[
        str | None, typer.Option("--db", help="An empty database; else a temporary file.")
    ] = None,
    json: options.Json = False,
) -> None:
    """Ask every question through the production path and measure what comes back.

    A run that was stopped goes on when the same command is given again.
    """
    _check_mode(mode, record, replay)
    _check_retrieval(mode, retrieval)
    without = _without(mode, grow_window, expand_queries)
    chosen = (mode, depth, max_questions, without, retrieval)
    work = _run(corpus, queries, out, *chosen, record, replay, db)
    folder, state, asked = options.run(work)
    if json:
        output.print_json({"run": str(folder), "asked": asked, **asdict(state)})
        return
    _print_summary(folder, state)
    if not asked:
        output.console().print("it was complete already; remove the folder to run it anew")


def _check_mode(mode: str, record: Path | None, replay: Path | None) -> None:
    if mode not in MODES:
        raise InvalidArgument(f"mode {mode!r} is not known", hint=f"Use {' or '.join(MODES)}")
    if record and replay:
        raise InvalidArgument(
            "--record and --replay exclude each other", hint="Leave one of them out"
        )
    if mode == "search" and (record or replay):
        raise InvalidArgument("a search calls no model", hint="Leave out --record and --replay")


def _check_retrieval(mode: str, retrieval: str) -> None:
    from memrecall.search.request import MODES

    if retrieval not in MODES:
        raise InvalidArgument(
            f"retrieval {retrieval!r} is not known", hint=f"Use {', '.join(MODES)}"
        )
    if mode != "search" and retrieval != "hybrid":
        raise InvalidArgument("--retrieval is of a search", hint="A recall chooses for itself")


def _without(mode: str, grow_window: bool, expand_queries: bool) -> tuple[str, ...]:
    """The parts of a recall that are switched off."""
    parts = {"grow_window": grow_window, "expand_queries": expand_queries}
    off = tuple(name for name, on in parts.items() if not on)
    if off and mode != "recall":
        flags = ", ".join(f"--no-{name.replace('_', '-')}" for name in off)
        raise InvalidArgument(f"{flags}: a search has no such part", hint="Use --mode recall")
    return off


async def _run(
    corpus_file: Path,
    queries_file: Path,
    out: str,
    mode: str,
    depth: int,
    max_questions: int | None,
    without: tuple[str, ...],
    retrieval: Any,
    record: Path | None,
    replay: Path | None,
    db: str | None,
) -> tuple[Path, Any, int]:
    from memrecall.evaluation.askers import Tapes
    from memrecall.evaluation.corpus import check_labels, read_corpus
    from memrecall.evaluation.questions import read_questions
    from memrecall.evaluation.runner import Runner, new_state
    from memrecall.evaluation.runs import RunFolder, RunPlan
    from memrecall.importers.jsonl import read_entry

    settings = _settings()
    asked = read_questions(queries_file, max_questions)
    corpus = read_corpus(corpus_file, read_entry)
    check_labels(asked, corpus)
    plan = RunPlan(
        mode=mode,
        depth=depth,
        max_questions=max_questions,
        corpus_sha256=corpus.sha256,
        queries_sha256=asked.sha256,
        embedder=settings.embedder,
        model="" if mode == "search" or replay else settings.model,
        tool_calls=settings.tool_calls,
        replayed=replay is not None,
        without=without,
        retrieval=retrieval,
        version=__version__,
    )
    folder = RunFolder(_place(out, settings))
    cassettes = replay or record
    tapes = Tapes(cassettes, replay=replay is not None) if cassettes else None
    if tapes is not None:
        tapes.prepare(corpus, resumed=folder.exists)
    used = replace(settings, db=db or str(folder.database), durability="normal", snapshots=False)
    with folder.held():
        state = folder.begin(new_state(plan, corpus_file, queries_file), asked.lines)
        runner = Runner(folder, state, corpus, asked)
        left = runner.questions - folder.mend()
        try:
            if left:
                await _ask(runner, used, tapes)
        finally:
            state = runner.sum_up().state
    return folder.path, state, left


async def _ask(runner: Any, settings: Any, tapes: Any) -> None:
    from memrecall.evaluation.askers import RecallAsker, SearchAsker
    from memrecall.memory import Library

    plan, corpus = runner.state.plan, runner.corpus
    async with AsyncExitStack() as stack:
        library = await stack.enter_async_context(await Library.open(settings))
        with output.progress_bar("importing", corpus.size, unit="lines") as advance:
            await runner.store_corpus(library, advance)
        asker: Any = SearchAsker(library, corpus, plan.depth, plan.retrieval)
        if plan.mode == "recall":
            client = None if plan.replayed else _client(settings)
            if client is not None:
                stack.push_async_callback(client.close)
            asker = RecallAsker(library, corpus, plan.depth, client, tapes, plan.without)
        with output.progress_bar("asking", runner.questions, unit="questions") as advance:
            await runner.ask_all(library, asker, advance)


def _client(settings: Any) -> Any:
    from memrecall.agent import offline_client
    from memrecall.memory import client_of

    return client_of(settings) or offline_client()


def _settings() -> Any:
    from memrecall.settings import load_settings

    return load_settings().settings


def _place(name: str, settings: Any) -> Path:
    """The folder of a run: a path, or a bare name in the runs folder."""
    is_path = any(mark in name for mark in "/\\") or name in (".", "..")
    return Path(name) if is_path else Path(settings.runs_dir) / name


def _read(name: str) -> Any:
    """A run that exists: in the runs folder, or where its path says."""
    from memrecall.evaluation.runs import RunFolder

    place = RunFolder(_place(name, _settings()))
    here = RunFolder(Path(name))
    return (here if here.exists and not place.exists else place).read()


def _print_summary(folder: Path, state: Any) -> None:
    terminal = output.console()
    counts, figures = state.counts, state.metrics["overall"]
    asked = output.count(counts["answered"], "question")
    terminal.print(f"{asked}, {counts['unanswerable']} of them without evidence: {folder}")
    for name in _SHOWN[state.plan.mode]:
        if name in figures:
            told = figures[name]
            terminal.print(
                f"{name:<20} [bold]{told['value']:.3f}[/bold]  "
                f"[dim]{told['low']:.3f} to {told['high']:.3f}[/dim]"
            )
    p50, p95 = (1000 * state.metrics["latency"][name] for name in ("p50", "p95"))
    terminal.print(f"{'latency':<20} p50 {p50:.0f} ms, p95 {p95:.0f} ms")
    if counts["evidence_hidden_by_as_of"]:
        hidden = output.count(counts["evidence_hidden_by_as_of"], "question")
        terminal.print(f"[yellow]{hidden} with evidence later than their as_of[/yellow]")
    if counts["fallbacks"]:
        fallen = output.count(counts["fallbacks"], "question")
        terminal.print(f"[yellow]{fallen} answered by the rules: the model failed[/yellow]")


@family.command("compare")
def compare_runs(
    first: RunName,
    second: RunName,
    metric: Annotated[
        str, typer.Option("--metric", help="What single questions are held against.")
    ] = "recall@10",
    worst: Annotated[int, typer.Option("--worst", min=0, help="Questions shown.")] = 20,
    json: options.Json = False,
) -> None:
    """Show what changed from one run to another over the same questions."""
    from memrecall.evaluation.compare import OVERALL, compare, hand_off_figures, worsened
    from memrecall.evaluation.metrics import MAIN

    before, after = _read(first), _read(second)
    changes = compare(before, after)
    losses = worsened(before, after, metric, worst)
    modes = (before.state.plan.mode, after.state.plan.mode)
    handed = hand_off_figures(before, after) if modes == ("search", "recall") else None
    if json:
        fields = [_change_fields(each) for each in changes]
        told_json = {"changes": fields, "worst": [asdict(each) for each in losses]}
        output.print_json(told_json | ({"handed_off": asdict(handed)} if handed else {}))
        return
    told = {metric, *(name for names in MAIN.values() for name in names)}
    _print_changes([c for c in changes if c.category == OVERALL or c.metric in told])
    if handed is not None:
        _print_handed_off(handed)
    terminal = output.console()
    if losses:
        terminal.print(f"\nwhere {metric} fell most")
    for each in losses:
        said = output.escape(single_line(each.query)[:_LONGEST_QUERY])
        where = output.escape(f"{each.query_id} {each.category}".strip())
        terminal.print(f"{each.before:.2f} → {each.after:.2f}  {said}  [dim]{where}[/dim]")


def _print_handed_off(handed: Any) -> None:
    """What the recall chose, beside what a cut of the search would have."""
    terminal = output.console()
    terminal.print(
        f"\nof {output.count(handed.questions, 'answerable question')}: {handed.keys:.1f} keys "
        f"handed off on average, nothing for {handed.empty:.1%}"
    )
    terminal.print(f"{'':<24}{'search':>9}{'recall':>9}")
    cut = f"F1, search cut at {handed.best_cut}"
    terminal.print(f"{cut:<24}{handed.search_f1:>9.3f}{handed.f1:>9.3f}")
    terminal.print(f"{'recall, as many keys':<24}{handed.search_recall:>9.3f}{handed.recall:>9.3f}")


def _change_fields(change: Any) -> dict[str, Any]:
    return {**asdict(change), "difference": change.difference, "sure": change.is_sure}


def _print_changes(changes: list[Any]) -> None:
    """A line for each; the category comes last, because it may be of any length."""
    terminal = output.console()
    heads = ("questions", "before", "after", "difference")
    terminal.print(f"{'metric':<20}" + "".join(f"{head:>11}" for head in heads) + "  95 % interval")
    for change in changes:
        colour = ("green" if change.is_better else "red") if change.is_sure else "dim"
        values = f"{_number(change.before):>11}{_number(change.after):>11}"
        between = f"{_number(change.low, '+')} to {_number(change.high, '+')}"
        terminal.print(
            f"{change.metric:<20}{change.questions:>11,}{values}"
            f"[{colour}]{_number(change.difference, '+'):>11}[/{colour}]  {between:<18} "
            f"{output.escape(change.category)}"
        )


def _number(value: float, sign: str = "") -> str:
    return f"{value:{sign},.0f}" if abs(value) >= 100 else f"{value:{sign}.3f}"


@family.command("report")
def report(
    runs: Annotated[list[str], typer.Argument(help="The runs, at most 8.")],
    out: Annotated[Path, typer.Option("--out", help="The HTML file.")],
    json: options.Json = False,
) -> None:
    """Write one HTML file with the figures and plots of some runs."""
    from memrecall.evaluation.report import write_report

    page = write_report([_read(name) for name in runs])
    _write(out, page)
    if json:
        output.print_json({"file": str(out), "runs": runs})
    else:
        output.console().print(f"written to {output.escape(str(out))}")


def _write(file: Path, text: str) -> None:
    try:
        file.write_text(text, "utf-8")
    except OSError as error:
        raise InvalidArgument(f"cannot write {file}: {error.strerror}") from None


@family.command("list")
def list_runs(json: options.Json = False) -> None:
    """List the runs of the runs folder, the latest first."""
    from memrecall.evaluation.runs import find_runs

    folder = Path(_settings().runs_dir)
    items = [_run_fields(path, state) for path, state in find_runs(folder)]
    if json:
        output.print_json({"folder": str(folder), "items": items})
        return
    for item in items:
        figures = [f"{n} {item[n]:.3f}" for n in ("recall@10", "f1") if item[n] is not None]
        done = f"{item['answered']:,}" + ("" if item["complete"] else f" of {item['questions']:,}")
        output.console().print(
            f"{item['started_at'][:16].replace('T', ' ')}  [bold]{output.escape(item['name'])}"
            f"[/bold]  {item['mode']}  {output.escape(item['corpus'])}  {done} questions  "
            + "  ".join(figures)
        )
    if not items:
        output.console().print(f"no runs in {output.escape(str(folder))}")


def _run_fields(path: Path, state: Any) -> dict[str, Any]:
    figures = state.metrics.get("overall", {})
    return {
        "name": path.name,
        "started_at": state.started_at,
        "mode": state.plan.mode,
        "corpus": state.corpus,
        "questions": state.counts.get("questions", 0),
        "answered": state.counts.get("answered", 0),
        "complete": state.complete,
        **{name: figures.get(name, {}).get("value") for name in ("recall@10", "f1")},
    }


@family.command("baseline")
def write_baseline_file(
    run: RunName,
    out: Annotated[Path, typer.Option("--out", help="The file.")],
    json: options.Json = False,
) -> None:
    """Write the main scores of a run, question by question, for `check`."""
    from memrecall.evaluation.baseline import baseline_of

    text = baseline_of(_read(run))
    _write(out, text)
    if json:
        output.print_json({"file": str(out), "bytes": len(text.encode())})
    else:
        output.console().print(f"written to {output.escape(str(out))}")


@family.command("check")
def check_run(
    run: RunName,
    baseline: Annotated[Path, typer.Option("--baseline", help="What `baseline` wrote.")],
    json: options.Json = False,
) -> None:
    """Hold a run against a baseline. Exit code 1: a main score has surely fallen."""
    from memrecall.evaluation.baseline import check, has_fallen

    changes = check(_read(run), baseline)
    fallen = [change for change in changes if has_fallen(change)]
    if json:
        told = [{**_change_fields(each), "fallen": has_fallen(each)} for each in changes]
        output.print_json({"passed": not fallen, "changes": told})
    else:
        _print_changes(changes)
        named = ", ".join(f"{change.metric} ({change.category})" for change in fallen)
        output.console().print(
            f"[red]fallen[/red]: {output.escape(named)}" if fallen else "nothing has surely fallen"
        )
    if fallen:
        raise typer.Exit(EXIT_FALLEN)
