"""Messages that are captured but not yet stored: one file each, named by the message id.

A message is put here before anything that may fail or take too long, and removed once it is
stored.
"""

import json
import os
from contextlib import suppress
from typing import Any

from memrecall.integrations.hooks.bindings import Binding, HookError, write_private
from memrecall.integrations.hooks.client import outbox_folder

MAX_PENDING = 2_000


class Outbox:
    """The pending messages of one installation."""

    def __init__(self, binding_path: str, binding: Binding) -> None:
        self._folder = outbox_folder(binding_path)
        self._binding = binding

    def keep(self, message: dict[str, Any]) -> None:
        """Keep a message until it is stored; the same one again changes nothing."""
        path = self._path(message["message_id"])
        if os.path.exists(path):
            return
        if len(self.pending_ids()) >= MAX_PENDING:
            raise HookError(
                f"{MAX_PENDING:,} messages are not stored yet; see `memrecall connect --status`"
            )
        fields = {"user": self._binding.user, "agent": self._binding.agent, "message": message}
        write_private(path, json.dumps(fields).encode())

    def pending_ids(self) -> list[str]:
        """Return the ids of the pending messages."""
        try:
            names = os.listdir(self._folder)
        except FileNotFoundError:
            return []
        return [name.removesuffix(".json") for name in names if name.endswith(".json")]

    def read_all(self) -> list[dict[str, Any]]:
        """Return the pending messages of the binding's user and agent, the earliest first."""
        entries = [entry for each in self.pending_ids() if (entry := self._read(each))]
        return sorted(entries, key=lambda entry: str(entry["ts"]))

    def _read(self, message_id: str) -> dict[str, Any] | None:
        try:
            with open(self._path(message_id), "rb") as file:
                fields = json.loads(file.read())
            owner = (fields["user"], fields["agent"])
            message: dict[str, Any] = fields["message"]
        except FileNotFoundError:  # another process has stored it
            return None
        except (ValueError, KeyError, TypeError) as error:
            self.remove(message_id)
            raise HookError(f"a pending message was damaged and is removed: {error!r}") from None
        # After an installation for another user, earlier messages still belong to the former one.
        return message if owner == (self._binding.user, self._binding.agent) else None

    def remove(self, message_id: str) -> None:
        """Remove a message that is stored."""
        with suppress(FileNotFoundError):  # another process was faster
            os.unlink(self._path(message_id))

    def _path(self, message_id: str) -> str:
        return os.path.join(self._folder, f"{message_id}.json")
