"""The log of server processes: JSON lines without the contents that exceptions may quote."""

import json
import logging
import sys
import threading
import traceback
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

_to_json = json.JSONEncoder(ensure_ascii=False, default=str).encode


class JsonLineFormatter(logging.Formatter):
    """Formats a record as one line of JSON with time, level, logger, event and fields."""

    def __init__(self, fields: Mapping[str, Any] | None = None) -> None:
        super().__init__()
        self._fields = fields or {}  # of every line

    def format(self, record: logging.LogRecord) -> str:
        """Return the line; of an exception only its type and place: its message may quote content.

        Further lines of a message are left out for the same reason: asyncio shows the exception of
        a task there, and Python the source of a warning.
        """
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage().partition("\n")[0],
            **self._fields,
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[1] is not None:
            line |= describe_exception(record.exc_info[1])
        return _to_json(line)


def log_to_stderr(fields: Mapping[str, Any] | None = None) -> None:
    """Write all logs, warnings and uncaught exceptions to stderr as JSON lines.

    The fields are added to every line.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLineFormatter(fields))
    levels = {
        "": logging.WARNING,  # all libraries
        "memrecall": logging.INFO,
        "asyncio": logging.ERROR,  # it warns of clients that have disconnected
        "nicegui": logging.CRITICAL,  # it quotes user content; the dashboard logs errors itself
    }
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)
    logging.getLogger().handlers = [handler]
    logging.captureWarnings(True)
    sys.excepthook = lambda _kind, error, _trace: _log_uncaught(error)
    threading.excepthook = lambda arguments: _log_uncaught(arguments.exc_value)
    sys.unraisablehook = lambda arguments: _log_uncaught(arguments.exc_value)


def _log_uncaught(error: BaseException | None) -> None:
    logging.getLogger("memrecall").error("uncaught exception", exc_info=error)


def describe_exception(error: BaseException) -> dict[str, Any]:
    """Return the type of an exception and where it was raised."""
    frames = traceback.extract_tb(error.__traceback__)
    locations = [f"{frame.filename}:{frame.lineno} {frame.name}" for frame in frames]
    return {"error": type(error).__name__, "at": locations}
