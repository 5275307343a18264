"""The HTTP service: the message query API, recall, keys that bind to users. Thin: no logic here."""

from memrecall.server.app import create_app
from memrecall.server.running import run_server

__all__ = ["create_app", "run_server"]
