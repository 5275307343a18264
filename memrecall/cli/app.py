"""The `memrecall` command: its families, and how a run ends."""

import sys
from typing import NoReturn

import click
import typer

from memrecall import __version__
from memrecall.cli import memories, messages, owners, search, upkeep
from memrecall.errors import MemrecallError

EXIT_WRONG = 2  # what was asked, or where it was to be done, is at fault
EXIT_STOPPED = 130

app = typer.Typer(
    name="memrecall",
    help="A colleague that recalls: search a user's messages and memories, offline.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
messages.register(app)
search.register(app)
memories.register(app)
owners.register(app)
upkeep.register(app)


def _show_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"memrecall {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = typer.Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """A colleague that recalls: search a user's messages and memories, offline."""


def run() -> NoReturn:
    """Parse the arguments, do the work, exit with what it comes to."""
    try:
        code = app(standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        code = EXIT_WRONG
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "memrecall"
        code = _fail(f"{error.format_message()} See `{command} --help`.")
    except click.exceptions.Abort:
        code = EXIT_STOPPED
    except MemrecallError as error:
        code = _fail(str(error))
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)  # noqa: T201
        code = EXIT_STOPPED
    except BrokenPipeError:
        # The reader (head, less) has seen enough.
        sys.stderr.close()
        code = 0
    sys.exit(code if isinstance(code, int) else 0)


def _fail(message: str) -> int:
    print("error: " + " ".join(message.split()), file=sys.stderr)  # noqa: T201
    return EXIT_WRONG
