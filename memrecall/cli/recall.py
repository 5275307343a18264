"""`recall`, and the `trace` commands that show stored recalls."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument, NotFound
from memrecall.json_objects import parse_json_line
from memrecall.text.terminal import cut_line, flatten, score_style, usable_width

EXIT_NOT_SEARCHED = 1
_QUERY_WIDTH = 34  # columns, so that a line of `trace list` has 79
_MESSAGE_HINT = 'Write messages like {"role": "user", "content": "…"}, one per line or as a list'

Brief = Annotated[bool, Option("--brief", help="One line per tool call.")]

trace_commands = options.CommandGroup(help="List, show and purge the traces of recalls.")


@dataclass(frozen=True, slots=True)
class CassetteOptions:
    """The file that model calls are recorded to or replayed from."""

    record: Annotated[Path | None, Option(help="Record the model's calls to this cassette.")] = None
    replay: Annotated[Path | None, Option(help="Replay a cassette instead of a model.")] = None
    overwrite: Annotated[
        bool, Option("--overwrite", help="Let --record replace an existing file.")
    ] = False

    def check(self) -> None:
        """Reject contradictory options before anything is opened."""
        if self.record and self.replay:
            raise InvalidArgument("--record and --replay are mutually exclusive", hint="Drop one")
        if self.overwrite and not self.record:
            raise InvalidArgument("--overwrite requires --record", hint="Add --record FILE")
        if self.record and self.record.exists() and not self.overwrite:
            raise InvalidArgument(
                f"cassette {self.record} already exists", hint="Pass --overwrite to replace it"
            )


@dataclass(frozen=True, slots=True)
class RecallTime:
    """The reference time of a recall, and its `--time`; `bounds` hides everything later."""

    now: datetime
    bounds: bool
    period: str | None = None


def recall_command(
    shared: options.UserSpacesOptions,
    cassette: CassetteOptions,
    query: Annotated[
        str | None, Argument(help="The user's message that refers to something earlier.")
    ] = None,
    session: options.CurrentSession = None,
    agent: options.Agent = None,
    messages: Annotated[
        str | None, Option(help="The conversation so far: a JSON file, or - for stdin.")
    ] = None,
    allow_sensitive: options.AllowSensitive = False,
    now: Annotated[str | None, Option(help="Recall as of this time; hide what came later.")] = None,
    time: options.TimeOption = None,
    max_iterations: Annotated[int | None, Option(help="Maximum number of windows (3).")] = None,
    seconds: Annotated[float | None, Option(help="Time limit (60).")] = None,
    brief: Brief = False,
) -> None:
    """Find what a message refers to; show tool calls, evidence and confidence.

    Uses the configured model, or search alone if none is configured.

    Exit code 0: the search ran, even if it found nothing; 1: nothing could be searched.
    """
    cassette.check()
    conversation = _read_request(query, messages)
    bound = options.read_time("--now", now)
    moment = RecallTime(bound or datetime.now(UTC), bound is not None, time)
    limits: dict[str, Any] = {"iterations": max_iterations, "seconds": seconds}
    limits = {name: value for name, value in limits.items() if value is not None}
    scope = shared.scope(agent, session, sensitive=allow_sensitive)

    async def recall(library: Any) -> Any:
        from memrecall.agent import Recaller, RecallOptions
        from memrecall.budget import Limits

        settings = RecallOptions(
            limits=Limits(**limits), keep_traces_days=library.settings.trace_days
        )
        client, at = _open_client(library.settings, moment, cassette)
        try:
            recaller = Recaller(library, scope, client, settings, clock=lambda: at.now)
            result = await recaller.recall(
                conversation,
                as_of=at.now if at.bounds else None,
                time=at.period,
                observer=observer,
            )
            if cassette.replay:
                client.assert_exhausted()
            return result
        finally:
            if client is not None:
                await client.close()

    with _observe(quiet=shared.json, brief=brief) as observer:
        result = shared.with_library(recall)
    lines = _recall_view(brief=brief).render_result(result)
    shared.print_page(result.model_dump(mode="json"), lines)
    if not result.handoff.success:
        raise typer.Exit(EXIT_NOT_SEARCHED)


def _read_request(query: str | None, file: str | None) -> list[Any]:
    """Return the file's messages, followed by the query as the user's last message."""
    if query is not None and not query.strip():
        raise InvalidArgument("the query is empty", hint="Pass the user's message")
    last = [{"role": "user", "content": query}] if query is not None else []
    if file is None:
        if not last:
            raise InvalidArgument("there is no query", hint="Pass a query, or --messages FILE")
        return last
    messages = _read_conversation_file(file)
    if not last and messages[-1].role != "user":
        raise InvalidArgument(
            f"the last message of {file} has role {messages[-1].role}, not user",
            hint="Pass the query as an argument",
        )
    return [*messages, *last]


def _read_conversation_file(file: str) -> list[Any]:
    """Read messages from a file, or from standard input for "-"; errors name the line.

    Messages without text, such as tool calls, are left out.
    """
    from memrecall.messages import parse_message

    messages = []
    for place, item in _read_items(file):
        if not isinstance(item, str | dict):
            raise InvalidArgument(f"{place}: not an object", hint=_MESSAGE_HINT)
        for name in ("role", "content"):
            if isinstance(item, dict) and name not in item:
                raise InvalidArgument(f"{place}: {name} is missing", hint=_MESSAGE_HINT)
        try:
            message = parse_message(item)
        except InvalidArgument as error:
            raise InvalidArgument(f"{place}: {error.message}", hint=error.hint) from None
        if message.text.strip():
            messages.append(message)
    if not messages:
        source = "standard input" if file == "-" else file
        raise InvalidArgument(f"{source} contains no message", hint=_MESSAGE_HINT)
    return messages


def _read_items(file: str) -> Iterator[tuple[str, Any]]:
    """Yield the items of a file with their places: of a JSON list, or the objects of its lines."""
    source = "standard input" if file == "-" else file
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except OSError as error:
        raise InvalidArgument(f"cannot read {file}: {error.strerror or error}") from None
    if data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"["):
        try:
            items = json.loads(data)
        except json.JSONDecodeError as error:
            place = f"{source} line {error.lineno}"
            raise InvalidArgument(f"{place}: not JSON ({error.msg})", hint=_MESSAGE_HINT) from None
        except (ValueError, RecursionError) as error:
            raise InvalidArgument(f"{source} is not JSON ({error})", hint=_MESSAGE_HINT) from None
        for number, item in enumerate(items, 1):
            yield f"{source} message {number}", item
        return
    for number, line in enumerate(data.split(b"\n"), 1):
        if line.strip():
            place = f"{source} line {number}"
            try:
                yield place, parse_json_line(line)
            except InvalidArgument as error:
                raise InvalidArgument(f"{place}: {error.message}", hint=_MESSAGE_HINT) from None


def _open_client(
    settings: Any, moment: RecallTime, cassette: CassetteOptions
) -> tuple[Any, RecallTime]:
    """Return the model client, recorded or replayed, and the recall's reference time."""
    from memrecall.memory import client_of
    from memrecall.model import RecordingClient, ReplayClient
    from memrecall.types import format_time, parse_time

    if cassette.replay:
        replayed = ReplayClient(cassette.replay)
        if "now" not in replayed.about:
            return replayed, moment
        # Another time than the recorded one would change the model's requests.
        now = parse_time(replayed.about["now"], "the cassette's now")
        recorded = RecallTime(now, bool(replayed.about.get("as_of")), moment.period)
        if moment.bounds and moment != recorded:
            raise InvalidArgument(
                f"{cassette.replay} was recorded with now = {replayed.about['now']}",
                hint="Drop --now",
            )
        return replayed, recorded
    client = client_of(settings)
    if cassette.record:
        if client is None:
            raise InvalidArgument(
                "--record needs a model: offline recalls make no model calls",
                hint="Set MEMRECALL_MODEL, or drop --record",
            )
        about = {"now": format_time(moment.now), "as_of": moment.bounds}
        client = RecordingClient(client, cassette.record, overwrite=cassette.overwrite, about=about)
    return client, moment


def _recall_view(*, brief: bool) -> Any:
    from memrecall.agent.terminal_view import RecallView

    width = usable_width(output.console().width)
    hint = "--allow-sensitive includes what was withheld"
    return RecallView(width, brief=brief, withheld_hint=hint)


def _print_lines(lines: list[Any]) -> None:
    for line in lines:
        output.console().print(line)


@contextmanager
def _observe(*, quiet: bool, brief: bool) -> Iterator[Callable[[Any], None] | None]:
    """Yield an observer that prints every event; on a terminal also a status line."""
    if quiet:
        yield None
        return
    terminal, view = output.console(), _recall_view(brief=brief)
    if not terminal.is_terminal:
        yield lambda event: _print_lines(view.render_event(event))
        return
    with terminal.status("opening", spinner="dots") as status:

        def show(event: Any) -> None:
            _print_lines(view.render_event(event))
            status.update(f"[dim]{view.describe_wait(event)}[/dim]")

        yield show


@trace_commands.command("show")
def show_trace(
    shared: options.UserReadingOptions,
    trace_id: Annotated[str | None, Argument(help="Trace id.")] = None,
    last: Annotated[bool, Option("--last", help="Show the user's latest recall.")] = False,
    agent: options.Agent = None,
    brief: Brief = False,
) -> None:
    """Show a stored recall as it was shown when it ran."""
    from memrecall.agent import RecallResult

    if (trace_id is not None) == last:
        raise InvalidArgument("exactly one of TRACE_ID and --last is required", hint="Choose one")
    scope = shared.scope(agent)
    trace = shared.with_library(lambda library: _get_trace(library, scope, trace_id))
    if shared.json:
        output.print_json(trace.body)
        return
    result, view = RecallResult.from_dict(trace.body), _recall_view(brief=brief)
    for event in result.trace.events:
        _print_lines(view.render_event(event))
    _print_lines(view.render_result(result))


async def _get_trace(library: Any, scope: Any, trace_id: str | None) -> Any:
    traces = library.store.traces(scope)
    if trace_id is not None:
        return await traces.get(trace_id)
    page = await traces.page(1)
    if not page.items:
        raise NotFound(
            f"no recall of user {scope.user_id!r} is stored", hint="See `memrecall trace list`"
        )
    return await traces.get(page.items[0].trace_id)


@trace_commands.command("list")
def list_traces(
    shared: options.UserReadingOptions,
    agent: options.Agent = None,
    limit: Annotated[int, Option(min=1, max=200, help="Traces per page, at most 200.")] = 50,
    cursor: options.CursorOption = None,
) -> None:
    """List a user's recalls, newest first."""
    from rich.cells import set_cell_size
    from rich.text import Text

    scope = shared.scope(agent)
    page = shared.with_library(lambda library: library.store.traces(scope).page(limit, cursor))
    fields = {"items": page.items, "next_cursor": page.next_cursor}
    lines = []
    for item in page.items:
        query = cut_line(Text(flatten(item.query)), _QUERY_WIDTH).plain
        confidence = "none" if item.abstained else f"{item.confidence:.2f}"
        line = Text.assemble(
            (f"{output.minute_of(item.created_at)}  ", "dim"),
            (confidence, "dim" if item.abstained else score_style(item.confidence)),
            f"  {set_cell_size(query, _QUERY_WIDTH)}  ",
            (item.trace_id, "dim"),
        )
        lines.append(line)
    shared.print_page(fields, lines)


@trace_commands.command("purge")
def purge_traces(
    older_than: Annotated[int, Option(help="Age in days; applies to all users.")],
    shared: options.SharedOptions,
) -> None:
    """Erase old traces of all users."""
    from memrecall.store.traces import MOST_TRACE_DAYS

    if not 0 <= older_than <= MOST_TRACE_DAYS:
        raise InvalidArgument(
            f"--older-than {older_than} is out of range", hint=f"Use 0 to {MOST_TRACE_DAYS} days"
        )
    before = datetime.now(UTC) - timedelta(days=older_than)

    async def purge(library: Any) -> int:
        with output.spinner("purging traces"):
            return int(await library.store.owners.purge_traces(before))

    purged = shared.with_library(purge)
    text = f"{output.count_noun(purged, 'trace')} purged"
    shared.print_outcome(text, {"purged": purged, "before": before})
