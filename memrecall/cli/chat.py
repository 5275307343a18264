"""`chat`: talk to an assistant that recalls."""

import asyncio
import contextlib
import logging
import signal
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Iterator
from functools import partial
from typing import Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli import options, output
from memrecall.errors import InvalidArgument, MemrecallError

_PROMPT = "you: "
_WAKE_SECONDS = 0.5


def chat_command(
    shared: options.UserOptions,
    message: Annotated[
        str | None, Argument(help="The user's message; default: read line by line.")
    ] = None,
    session: options.CurrentSession = None,
    agent: options.Agent = None,
    instructions: Annotated[str, Option(help="System instructions for the model.")] = "",
    verbose: Annotated[bool, Option("--verbose", help="Show the log on stderr.")] = False,
) -> None:
    """Talk to an assistant that recalls; show its tool calls while it answers.

    Uses the configured model, or the offline rules if none is configured. Messages are stored,
    and what they state is remembered.
    """
    _configure_logging(verbose)
    if message is not None and not message.strip():
        raise InvalidArgument("the message is empty", hint="Pass some text")
    scope = shared.scope(agent, session)
    with _open_chat(shared) as (runner, library, chat_arguments):
        from memrecall.chat import SingleChat

        single = SingleChat(library, scope, instructions=instructions, **chat_arguments)
        if message is not None:
            _run_turn(runner, single.stream(message), shared.json)
            return
        for line in input_lines(_PROMPT):
            _try_turn(partial(_run_turn, runner, single.stream(line), shared.json), shared.json)


def _try_turn(turn: Callable[[], None], json: bool) -> None:
    """Run a turn; report errors, and on a terminal Ctrl-C, without ending the chat."""
    try:
        turn()
    except KeyboardInterrupt:
        if not is_interactive():
            raise
        typer.echo("stopped; press Ctrl-C again or Ctrl-D to end the chat", err=True)
    except MemrecallError as error:
        if json:
            typer.echo(output.to_json_line({"error": {"code": error.code, "message": str(error)}}))
        else:
            typer.echo(f"error: {error} [{error.code}]", err=True)


def _run_turn(runner: asyncio.Runner, events: AsyncGenerator[Any, None], json: bool) -> None:
    """Run a turn; print its events as they happen, or its answer and events as JSON."""
    from memrecall.chat import Failed, TextRetracted
    from memrecall.cli.views.chat import ChatTurnView

    terminal = output.console()
    view = ChatTurnView(terminal, output.usable_width(terminal.width))

    async def collect() -> dict[str, Any]:
        collected: list[dict[str, Any]] = []
        async for event in events:
            if isinstance(event, Failed):
                raise event.error
            if isinstance(event, TextRetracted):
                collected = _without_text(collected, event.text)
            else:
                collected.append(event.as_dict())
            if not json:
                view.show(event)
        *earlier, final = collected
        del final["type"]
        return {"answer": final, "events": earlier}

    try:
        turn = runner.run(collect())
    except (KeyboardInterrupt, MemrecallError):
        view.end_line()
        raise
    if json:
        output.print_json(turn)


def _without_text(events: list[dict[str, Any]], text: str) -> list[dict[str, Any]]:
    """Return collected events with a retracted text replaced by what remains of it."""
    kept = [event for event in events if event["type"] != "text_delta"]
    return [*kept, *([{"type": "text_delta", "text": text}] if text else [])]


@contextlib.contextmanager
def _open_chat(
    shared: options.SharedOptions,
) -> Iterator[tuple[asyncio.Runner, Any, dict[str, Any]]]:
    """Open one event loop for all turns, the library, and the arguments of the chat classes."""
    with asyncio.Runner() as runner, contextlib.ExitStack() as stack:
        library = runner.run(shared.open(create=True))
        stack.callback(lambda: runner.run(library.close()))
        arguments = _chat_arguments(library.settings)
        client = arguments["model_client"]
        if client is not None:
            stack.callback(lambda: runner.run(client.close()))
        yield runner, library, arguments


def _chat_arguments(settings: Any) -> dict[str, Any]:
    from memrecall.chat import ChatOptions
    from memrecall.memory import client_of

    return {
        "model_client": client_of(settings),
        "options": ChatOptions.of(settings, extract=True),
    }


def is_interactive() -> bool:
    """Return True if a person types the input."""
    return sys.stdin.isatty()


def input_lines(prompt: str) -> Iterator[str]:
    """Yield every line that is not blank, until the input ends.

    On a terminal, lines can be edited, and the up arrow recalls earlier ones. They are not written
    to a history file: messages are stored in the database only, where they can be erased.
    """
    if is_interactive():
        with contextlib.suppress(ImportError):  # Windows consoles have line editing built in
            import readline  # noqa: F401 -- changes `input`
    while True:
        try:
            line = _read_line(prompt) if is_interactive() else input()
        except EOFError:
            if is_interactive():
                typer.echo()
            return
        if line.strip():
            yield line


def _read_line(prompt: str) -> str:
    """Read a line from the terminal; Ctrl-C interrupts it at any moment.

    A signal that arrives after the prompt is printed and before the editor waits for a key is not
    handled until the next key. A timer wakes the editor regularly, so that it is.
    """
    if (
        not hasattr(signal, "setitimer")
        or threading.current_thread() is not threading.main_thread()
    ):
        return input(prompt)
    previous = signal.signal(signal.SIGALRM, lambda *_: None)
    signal.setitimer(signal.ITIMER_REAL, _WAKE_SECONDS, _WAKE_SECONDS)
    try:
        return input(prompt)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


def _configure_logging(verbose: bool) -> None:
    """Log to stderr if `verbose`; otherwise keep the log out of the conversation."""
    logger = logging.getLogger("memrecall")
    if verbose:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(levelname)s %(name)s: %(message)s"))
        logger.handlers = [handler]
        logger.setLevel(logging.INFO)
    elif sys.stderr.isatty():
        logger.addHandler(logging.NullHandler())  # otherwise Python prints warnings to stderr
