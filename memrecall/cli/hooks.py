"""`memrecall hook`, and the state of connected clients."""

import json as json_module
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

from memrecall.cli import output
from memrecall.integrations.hooks.client import main as run_hook
from memrecall.integrations.hooks.clients import CLIENTS
from memrecall.settings import config_folder

_COLUMNS = (14, 8, 40, 10, 8, 8)
_SUMMED = ("recalled", "tokens", "model_calls", "stored", "milliseconds")


def hook(
    event: Annotated[str, Argument(help="Event of the client, such as UserPromptSubmit.")],
    config: Annotated[Path, Option(help="File that `memrecall connect` has written.")],
) -> None:
    """Handle an event of a client, whose JSON is read from standard input.

    Clients run this command. It prints the recalled memories in the client's format, or nothing; an
    error is a line in hooks.log in the folder of the file.
    """
    run_hook([event, "--config", str(config)])


def print_activity(project: Path | None, *, json: bool) -> None:
    """Print what the clients have recalled and stored, and which are not connected."""
    from memrecall.integrations.hooks.installation import installed, locate

    targets = {each.binding_path: each for each in installed()}
    for client in CLIENTS.values():
        target = locate(client.name, None)
        targets.setdefault(target.binding_path, target)
    if project is not None:
        folder = Path(os.path.realpath(project))
        targets = {path: each for path, each in targets.items() if each.project in (None, folder)}
    activity = _read_activity(config_folder() / "hooks" / "hooks.log")
    rows = [
        (target.describe(), activity.get(path.name, _Activity()))
        for path, target in targets.items()
    ]
    if json:
        items = [{**row, "activity": vars(done), "receipt": done.sentence()} for row, done in rows]
        output.print_json({"items": items})
        return
    _print_row("client", "events", "last event", "recalled", "stored", "errors")
    for row, done in rows:
        last = f"{done.last_event} {output.minute_of(done.last_time)}" if done.events else "-"
        if not row["installed"]:
            last = "not connected"
        _print_row(row["client"], done.events, last, done.recalled, done.stored, done.errors)
        where = f"in {row['project']}" if row["project"] else ""
        pending = f"{row['pending']} pending" if row.get("pending") else ""
        receipt = done.sentence() if done.events else ""
        for note in filter(None, (where, receipt, pending, done.last_problem)):
            typer.echo(f"  {note}")


def _print_row(*cells: object) -> None:
    line = " ".join(f"{cell!s:<{width}}" for cell, width in zip(cells, _COLUMNS, strict=True))
    typer.echo(line.rstrip())


@dataclass
class _Activity:
    """The events of one binding: their number, the last one, and sums of what they did."""

    events: int = 0
    last_event: str = ""
    last_time: str = ""
    recalled: int = 0
    tokens: int = 0
    model_calls: int = 0
    stored: int = 0
    milliseconds: int = 0
    errors: int = 0
    last_problem: str = ""

    def add(self, line: dict[str, Any]) -> None:
        """Count a line of the log."""
        if "problem" in line:
            self.errors += 1
            self.last_problem = str(line["problem"])
        if "problem" in line or "milliseconds" in line:  # not what a later event has delivered
            self.events += 1
            self.last_event, self.last_time = str(line["event"]), str(line["time"])
        for name in _SUMMED:
            setattr(self, name, getattr(self, name) + int(line.get(name, 0)))

    def sentence(self) -> str:
        """Return what the events have added, and what they cost."""
        average = round(self.milliseconds / max(self.events - self.errors, 1))
        return (
            f"recalled {output.count_noun(self.recalled, 'memory')}, {self.tokens:,} tokens added,"
            f" {self.model_calls:,} model calls, {average:,} ms an event"
        )


def _read_activity(log: Path) -> dict[str, _Activity]:
    """Return the activity by the name of the binding's file, of the log and the one before it."""
    activity: dict[str, _Activity] = {}
    for line in _read_lines(log.with_name(f"{log.name}.1"), log):
        activity.setdefault(str(line.get("binding")), _Activity()).add(line)
    return activity


def _read_lines(*files: Path) -> Iterator[dict[str, Any]]:
    for file in files:
        try:
            text = file.read_text("utf-8", errors="replace")
        except FileNotFoundError:
            continue
        for line in text.splitlines():
            try:
                fields = json_module.loads(line)
            except ValueError:  # cut off by a full disk
                continue
            if isinstance(fields, dict) and {"event", "time"} <= fields.keys():
                yield fields
