"""The `memrecall` command: its families, and how a run ends."""

import os
import sys
from typing import Any, NoReturn

import typer

from memrecall import __version__
from memrecall.cli import (
    chat,
    evaluation,
    graph,
    keys,
    maintenance,
    memories,
    messages,
    owners,
    recall,
    search,
    serve,
    trace,
)
from memrecall.errors import MemrecallError
from memrecall.text_length import single_line

EXIT_WRONG = 2  # what was asked, or where it was to be done, is at fault
EXIT_STOPPED = 130

# What the parser raises for arguments it cannot take; its own module is not public.
UsageError: Any = typer.BadParameter.__base__

app = typer.Typer(
    name="memrecall",
    help="A colleague that recalls: recall and search a user's messages and memories, offline.",
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
messages.register(app)
recall.register(app)
chat.register(app)
trace.register(app)
search.register(app)
memories.register_add(app)
memories.register(app)
graph.register(app)
maintenance.register_sweep(app)
messages.register_export(app)
owners.register(app)
keys.register(app)
maintenance.register(app)
evaluation.register(app)
serve.register(app)
serve.register_rpc(app)
serve.register_mcp(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"memrecall {__version__}")
        raise typer.Exit


_RESUMED = (("import",), ("reindex",), ("eval", "run"))


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """A colleague that recalls: recall and search a user's messages and memories, offline."""


def run() -> NoReturn:
    """Parse the arguments, do the work, exit with what it comes to."""
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except UsageError as error:
        code = _fail(_describe(error), "INVALID_ARGUMENT")
    except MemrecallError as error:
        code = _fail(str(error), error.code, error.details)
    except typer.Abort:
        code = _fail("nothing was done: not confirmed", "ABORTED")
    except KeyboardInterrupt:
        code = EXIT_STOPPED
    except BrokenPipeError:
        # The reader (head, less) has seen enough; the interpreter must not write to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    if code == EXIT_STOPPED:  # the parser turns Ctrl-C into this code, and says nothing
        typer.echo("stopped; run it again to go on" if _goes_on() else "stopped", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _goes_on() -> bool:
    """Whether the command takes up its work where it was stopped."""
    return any(sys.argv[1 : 1 + len(command)] == list(command) for command in _RESUMED)


def _describe(error: Any) -> str:
    """What is wrong with the arguments, and where to read more."""
    said = error.format_message()
    cause = error.__cause__  # of pydantic's making, where a value has the wrong type
    given = f" Given: {cause.errors()[0]['input']!r}." if hasattr(cause, "errors") else ""
    command = error.ctx.command_path if error.ctx else "memrecall"
    return f"{said.rstrip('.')}.{given} See `{command} --help`"


def _fail(message: str, error_code: str, details: dict[str, Any] | None = None) -> int:
    """One line on the error stream: for people, or as JSON where JSON was asked for."""
    line = single_line(message)
    if "--json" in sys.argv:
        from memrecall.cli.output import as_json

        error = {"code": error_code, "message": line, "details": details or {}}
        typer.echo(as_json({"error": error}), err=True)
    else:
        typer.echo(f"error: {line} [{error_code}]", err=True)
    return EXIT_WRONG
