"""Log lines as JSON, one a line."""

import json
import logging
import sys
from datetime import UTC, datetime


class JsonLines(logging.Formatter):
    """Time, level, logger, what happened, and the fields that came with it."""

    def format(self, record: logging.LogRecord) -> str:
        """One line; of an exception its type alone, for its message may quote contents."""
        line = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "event": record.getMessage(),
            **getattr(record, "fields", {}),
        }
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return json.dumps(line, ensure_ascii=False, default=str)


def log_to_stderr() -> None:
    """Send what memrecall and the server have to say to the error stream."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    levels = {
        "memrecall": logging.INFO,
        "uvicorn": logging.WARNING,
        "opentelemetry": logging.WARNING,
        "nicegui": logging.CRITICAL,  # it quotes what failed; the dashboard logs that itself
    }
    for name, level in levels.items():
        logger = logging.getLogger(name)
        logger.handlers = [handler]
        logger.setLevel(level)
        logger.propagate = False
