"""The `memrecall` command: its subcommands, exit codes and error output."""

import os
import sys
from typing import Any, NoReturn

import typer
from typer import Option

from memrecall import __version__
from memrecall.cli import (
    connect,
    evaluation,
    maintenance,
    memories,
    messages,
    owners,
    recall,
    search,
    serve,
    spaces,
)
from memrecall.cli.options import CommandGroup
from memrecall.errors import MemrecallError, explain_validation_problem
from memrecall.text_length import single_line

# Functions and groups of commands, by the panel of `--help` that lists them.
_COMMANDS: dict[str, dict[str, Any]] = {
    "Recall and search": {
        "recall": recall.recall_command,
        "search": search.search_command,
        "graph": search.graph_command,
        "trace": recall.trace_commands,
    },
    "Messages and memories": {
        "import": messages.import_messages,
        "export": messages.export,
        "messages": messages.list_messages,
        "neighbors": messages.show_neighbors,
        "delete-message": messages.delete_command,
        "extract": messages.extract_command,
        "add": memories.add,
        "memories": memories.memory_commands,
        "sweep": maintenance.sweep_command,
    },
    "Services and clients": {
        "serve": serve.serve_command,
        "rpc": serve.rpc_command,
        "mcp": serve.mcp,
        "connect": connect.connect,
        "disconnect": connect.disconnect,
        "hook": connect.hook,
    },
    "Administration": {
        "doctor": maintenance.doctor,
        "stats": maintenance.stats,
        "backup": maintenance.backup_command,
        "restore": maintenance.restore_command,
        "reindex": maintenance.reindex,
        "scan": maintenance.scan_command,
        "compact": maintenance.compact,
        "db": maintenance.database_commands,
        "users": owners.user_commands,
        "agents": owners.agent_commands,
        "sessions": owners.session_commands,
        "projects": owners.project_commands,
        "keys": owners.key_commands,
        "spaces": spaces.space_commands,
    },
    "Evaluation": {"eval": evaluation.evaluation_commands},
}
EXIT_ERROR = 2
EXIT_INTERRUPTED = 130
_RESUMABLE = ("import", "extract", "reindex", "scan", "eval run", "db distribute")
_HELP = "Long-term memory and recall for LLM agents: find what a user is referring to, offline."

# The parser's base class for usage errors; its module is not public.
UsageError: Any = typer.BadParameter.__base__

app = CommandGroup(
    name="memrecall",
    help=_HELP,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)
for _panel, _commands in _COMMANDS.items():
    for _name, _command in _commands.items():
        if isinstance(_command, typer.Typer):
            app.add_typer(_command, name=_name, rich_help_panel=_panel)
        else:
            app.command(_name, rich_help_panel=_panel)(_command)


def _show_version(requested: bool) -> None:
    if requested:
        typer.echo(f"memrecall {__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: bool = Option(
        False, "--version", callback=_show_version, is_eager=True, help="Show the version and exit."
    ),
) -> None:
    """Long-term memory and recall for LLM agents."""


def run_command_line() -> NoReturn:
    """Parse the arguments, run the command and exit with its code."""
    try:
        code = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except UsageError as error:
        code = _fail(_describe(error), "INVALID_ARGUMENT")
    except MemrecallError as error:
        code = _fail(str(error), error.code, error.details)
    except typer.Abort:
        code = _fail("not confirmed; nothing was changed", "ABORTED")
    except KeyboardInterrupt:
        code = EXIT_INTERRUPTED
    except BrokenPipeError:
        # The reader (head, less) has gone; the interpreter must not write to it at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    if code == EXIT_INTERRUPTED:  # the parser turns Ctrl-C into this code without a message
        command = {" ".join(sys.argv[1:2]), " ".join(sys.argv[1:3])}
        is_resumable = not command.isdisjoint(_RESUMABLE)
        typer.echo("stopped; run it again to continue" if is_resumable else "stopped", err=True)
    sys.exit(code if isinstance(code, int) else 0)


def _describe(error: Any) -> str:
    """Return a usage error with the invalid value and the help to read."""
    message, value = error.format_message().rstrip("."), ""
    if hasattr(error.__cause__, "errors"):  # pydantic's error: a value has the wrong type
        problem = error.__cause__.errors()[0]
        message = message.replace(problem["msg"], explain_validation_problem(problem))
        value = f" Value: {problem['input']!r}."
    command = error.ctx.command_path if error.ctx else "memrecall"
    end = "" if message.endswith("?") else "."
    return f"{message}{end}{value} See `{command} --help`"


def _fail(message: str, error_code: str, details: dict[str, Any] | None = None) -> int:
    """Print an error as one line on stderr, as JSON with --json; return the code."""
    line = single_line(message)
    if "--json" in sys.argv:
        from memrecall.cli.output import to_json_line

        error = {"code": error_code, "message": line, "details": details or {}}
        typer.echo(to_json_line({"error": error}), err=True)
    else:
        typer.echo(f"error: {line} [{error_code}]", err=True)
    return EXIT_ERROR
