"""`recall`."""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument


def read_messages(file: str) -> list[Any]:
    """The messages of a file, or of standard input for "-"; what is wrong is named by line."""
    where = "standard input" if file == "-" else file
    items = list(_items(_read(file), where))
    found = [said for place, item in items for said in _check(item, place)]
    if not found:
        raise InvalidArgument(f"{where} has no message", hint=_SHAPE)
    return found


_SHAPE = 'Write messages like {"role": "user", "content": "…"}, one a line or in one list'


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        reason = error.strerror or str(error)
        raise InvalidArgument(f"the file {file} cannot be read: {reason}") from None
    except UnicodeDecodeError as error:
        line = error.object.count(b"\n", 0, error.start) + 1
        raise InvalidArgument(f"{file} line {line}: not UTF-8", hint=_SHAPE) from None


def _items(text: str, where: str) -> Iterator[tuple[str, Any]]:
    """Each message with the words that say where it stands."""
    if text.lstrip().startswith("["):
        for number, item in enumerate(_load(text, where, 1), 1):
            yield f"{where} message {number}", item
        return
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield f"{where} line {number}", _load(line, where, number)


def _load(text: str, where: str, first_line: int) -> Any:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        line = first_line + error.lineno - 1
        raise InvalidArgument(f"{where} line {line}: not JSON ({error.msg})", hint=_SHAPE) from None
    except RecursionError:
        raise InvalidArgument(f"{where} line {first_line}: nested too deep", hint=_SHAPE) from None


def _check(item: Any, place: str) -> tuple[Any, ...]:
    """Return the message as recall takes it, or nothing for one without text."""
    from memrecall.messages import parse_message

    if not isinstance(item, str | dict):
        raise InvalidArgument(f"{place}: not an object", hint=_SHAPE)
    for name in ("role", "content"):
        if isinstance(item, dict) and name not in item:
            raise InvalidArgument(f"{place}: {name} is missing", hint=_SHAPE)
    try:
        message = parse_message(item)
    except InvalidArgument as error:
        raise InvalidArgument(f"{place}: {error.message}", hint=error.hint) from None
    return (message,) if message.text.strip() else ()


EXIT_NOT_SEARCHED = 1


def register(app: typer.Typer) -> None:
    """Add this family's commands."""
    app.command("recall")(recall)


@dataclass(frozen=True, slots=True)
class Tape:
    """Where the model's calls are recorded to, or replayed from."""

    record: Path | None = None
    replay: Path | None = None
    overwrite: bool = False

    def check(self) -> None:
        """Refuse what cannot be meant, before anything is opened."""
        if self.record and self.replay:
            raise InvalidArgument(
                "--record and --replay exclude each other", hint="Leave one of them out"
            )
        if self.overwrite and not self.record:
            raise InvalidArgument("--overwrite belongs to --record")
        if self.record and self.record.exists() and not self.overwrite:
            raise InvalidArgument(
                f"the cassette {self.record} exists already", hint="Pass --overwrite to replace it"
            )


@dataclass(frozen=True, slots=True)
class RecallTime:
    """The time that a recall counts from; `bounds` means that nothing said later is seen."""

    now: datetime
    bounds: bool

    def as_dict(self) -> dict[str, Any]:
        """What a cassette keeps of it."""
        from memrecall.types import format_time

        return {"now": format_time(self.now), "as_of": self.bounds}


def recall(
    user: options.User,
    query: Annotated[
        str | None, typer.Argument(help="What the user says now; refers to something earlier.")
    ] = None,
    db: options.Db = None,
    session: Annotated[
        str | None, typer.Option("--session", help="The session it is said in.")
    ] = None,
    agent: options.Agent = None,
    messages: Annotated[
        str | None,
        typer.Option("--messages", help="The conversation so far: a file of JSON, - is stdin."),
    ] = None,
    allow_sensitive: Annotated[
        bool, typer.Option("--allow-sensitive", help="Also recall memories marked as sensitive.")
    ] = False,
    now: Annotated[
        str | None, typer.Option("--now", help="As if it were then: nothing said later is seen.")
    ] = None,
    record: Annotated[
        Path | None, typer.Option("--record", help="Write every call of the model to this file.")
    ] = None,
    replay: Annotated[
        Path | None, typer.Option("--replay", help="Answer from such a file, without a model.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Record onto a file that exists.")
    ] = False,
    max_iterations: Annotated[
        int | None, typer.Option("--max-iterations", help="Windows at most (3).")
    ] = None,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Time at most (60).")] = None,
    json: options.Json = False,
) -> None:
    """Find what a message refers to, and show how: tool calls, evidence, confidence.

    By the model of the settings, or by rules where none is set.

    Exit code 0: also when nothing was found; 1: nothing could be searched.
    """
    tape = Tape(record, replay, overwrite)
    tape.check()
    asked = read_request(query, messages)
    given = options.read_time("--now", now)
    moment = RecallTime(given or datetime.now(UTC), bounds=given is not None)
    limits = {"iterations": max_iterations, "seconds": seconds}
    scope = _scope(user, agent, session, allow_sensitive)
    with watching(quiet=json) as observer:
        result = options.run(_recall(asked, scope, db, moment, tape, limits, observer))
    if json:
        output.print_json(result.model_dump(mode="json"))
    else:
        print_result(result)
    if not result.handoff.success:
        raise typer.Exit(EXIT_NOT_SEARCHED)


def read_request(query: str | None, file: str | None) -> list[Any]:
    """The conversation: the file's messages, then the query as the user's last one."""
    if query is not None and not query.strip():
        raise InvalidArgument("the request is empty", hint="Say what is to be recalled")
    asked = [{"role": "user", "content": query}] if query is not None else []
    if file is None:
        if not asked:
            raise InvalidArgument("nothing is asked", hint="Give a request, or --messages")
        return asked
    from memrecall.cli.recall import read_messages

    said = read_messages(file)
    if not asked and said[-1].role != "user":
        raise InvalidArgument(
            f"the last message of {file} is not the user's but the {said[-1].role}'s",
            hint="Give the request as an argument",
        )
    return [*said, *asked]


def _scope(user: str, agent: str | None, session: str | None, sensitive: bool) -> Any:
    from memrecall.scope import Permission, Scope

    granted = frozenset({Permission.SENSITIVE}) if sensitive else frozenset()
    return Scope(user, agent, session, granted)


async def _recall(
    asked: list[Any],
    scope: Any,
    db: str | None,
    moment: RecallTime,
    tape: Tape,
    limits: dict[str, Any],
    observer: Callable[[Any], None] | None,
) -> Any:
    from memrecall.agent import Recaller, RecallOptions
    from memrecall.budget import Limits

    bounds = Limits(**{name: value for name, value in limits.items() if value is not None})
    async with await options.open_library(db) as library:
        chosen = RecallOptions(limits=bounds, keep_traces_days=library.settings.trace_days)
        client, moment = open_client(library.settings, moment, tape)
        try:
            recaller = Recaller(library, scope, client, chosen, clock=lambda: moment.now)
            as_of = moment.now if moment.bounds else None
            result = await recaller.recall(asked, as_of=as_of, observer=observer)
            if tape.replay:
                client.assert_exhausted()
            return result
        finally:
            await client.close()


def open_client(settings: Any, moment: RecallTime, tape: Tape) -> tuple[Any, RecallTime]:
    """The model, recorded or replayed if that was asked for, and the time that it counts from."""
    from memrecall.agent import offline_client
    from memrecall.memory import client_of
    from memrecall.model import RecordingClient, ReplayClient

    if tape.replay:
        replayed = ReplayClient(tape.replay)
        return replayed, _recorded_moment(replayed.about, moment, tape.replay)
    client = client_of(settings) or offline_client()
    if tape.record:
        about = moment.as_dict()
        client = RecordingClient(client, tape.record, overwrite=tape.overwrite, about=about)
    return client, moment


def _recorded_moment(about: Any, moment: RecallTime, file: Path) -> RecallTime:
    """The time of the recording: another one would ask the model something else."""
    from memrecall.types import parse_time

    if "now" not in about:
        return moment
    recorded = RecallTime(parse_time(about["now"], "the cassette's now"), bool(about.get("as_of")))
    if moment.bounds and moment != recorded:
        raise InvalidArgument(
            f"{file} was recorded with now = {about['now']}", hint="Leave out --now"
        )
    return recorded


@contextmanager
def watching(*, quiet: bool) -> Iterator[Callable[[Any], None] | None]:
    """An observer that draws each event at once; on a terminal also what is going on."""
    if quiet:
        yield None
        return
    from memrecall.cli.output import usable_width
    from memrecall.cli.views.recall import Drawing

    terminal = output.console()
    drawing = Drawing(usable_width(terminal.width))
    status = terminal.status("opening", spinner="dots") if terminal.is_terminal else None

    def draw(event: Any) -> None:
        for line in drawing.event(event):
            terminal.print(line)
        if status:
            status.update(f"[dim]{drawing.waiting_for(event)}[/dim]")

    if status is None:
        yield draw
        return
    with status:
        yield draw


def print_result(result: Any) -> None:
    """What a recall came to, after its events."""
    from memrecall.cli.output import usable_width
    from memrecall.cli.views.recall import Drawing

    terminal = output.console()
    for line in Drawing(usable_width(terminal.width)).result(result):
        terminal.print(line)
