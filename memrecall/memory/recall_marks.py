"""When a memory was last of use: noted in this process, written now and then.

A search must not wait for a write. What a crash takes with it is a few such notes.
"""

import logging
from collections.abc import Iterable
from datetime import UTC, datetime

from memrecall.errors import StorageError
from memrecall.scope import Scope
from memrecall.store import Store

_log = logging.getLogger(__name__)

MOST_WAITING = 500


class RecallMarks:
    """Notes of which memories searches have found."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._waiting: dict[str, set[str]] = {}

    def note(self, user_id: str, keys: Iterable[str]) -> bool:
        """Memories were found; whether it is time to write that down."""
        self._waiting.setdefault(user_id, set()).update(keys)
        return sum(map(len, self._waiting.values())) >= MOST_WAITING

    def forget(self, user_id: str) -> None:
        """A user is gone."""
        self._waiting.pop(user_id, None)

    async def flush(self) -> None:
        """Write down what waits. A database that cannot be written loses no more than notes."""
        waiting, self._waiting = self._waiting, {}
        now = datetime.now(UTC)
        for user_id, keys in waiting.items():
            try:
                await self._store.memory_list(Scope(user_id)).mark_recalled(sorted(keys), now)
            except StorageError as error:
                _log.warning("when memories were last recalled is not noted: %s", error)
