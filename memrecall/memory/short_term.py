"""The short-term memory of one session: in this process, found by words, gone when it ends.

What a running task would miss after a crash is saved in checkpoints, after so many messages and at
intervals; what is worth keeping is promoted into the long-term memory before the session ends.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.search.ranking.small import rank_texts
from memrecall.store import Checkpoint, Store
from memrecall.types import check_json, check_text

MOST_ITEMS = 2_000
EVERY_MESSAGES = 20
EVERY_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Item:
    """Something that a session has in mind."""

    text: str
    role: str = "user"
    speaker: str | None = None
    message_id: str | None = None


class ShortTermMemory:
    """What one session has in mind. `scratch` is the task's own JSON; checkpoints save it too."""

    def __init__(
        self,
        store: Store,
        scope: Scope,
        *,
        every_messages: int = EVERY_MESSAGES,
        every_seconds: float = EVERY_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if every_messages < 1 or not every_seconds > 0:
            raise InvalidArgument("a checkpoint is made after 1 message or more, and some seconds")
        self._room = store.session_state(scope)
        self._every = (every_messages, every_seconds)
        self._clock = clock
        self._items: list[Item] = []
        self._unsaved = 0
        self._saved_at = clock()
        self._ended = False
        self.scratch: dict[str, Any] = {}

    @property
    def items(self) -> tuple[Item, ...]:
        """All that is in mind, the earliest first."""
        return tuple(self._items)

    async def add(self, items: Sequence[Item | str]) -> Checkpoint | None:
        """Take something in; the checkpoint that was due, if one was."""
        self._require_open()
        fresh = [Item(item) if isinstance(item, str) else item for item in items]
        for item in fresh:
            check_text("the text", item.text)
        self._items = [*self._items, *fresh][-MOST_ITEMS:]
        self._unsaved += len(fresh)
        return await self.checkpoint() if self._is_due() else None

    def search(self, query: str, limit: int = 10) -> list[Item]:
        """What shares words with a query, the best first."""
        found = rank_texts([item.text for item in self._items], query, limit)
        return [self._items[place.position] for place in found]

    async def checkpoint(self) -> Checkpoint:
        """Save everything now."""
        self._require_open()
        check_json("scratch", self.scratch)
        state = {"items": [asdict(item) for item in self._items], "scratch": self.scratch}
        saved = await self._room.save(state)
        self._unsaved, self._saved_at = 0, self._clock()
        return saved

    async def restore(self) -> bool:
        """Go on from the last checkpoint; False if there is none."""
        saved = await self._room.latest()
        if saved is None:
            return False
        self._items = [_read_item(item) for item in saved.state["items"]]
        self.scratch = dict(saved.state["scratch"])
        self._unsaved, self._saved_at = 0, self._clock()
        return True

    async def end(self) -> None:
        """Forget all of it, checkpoints included."""
        self._require_open()
        self._items, self.scratch, self._ended = [], {}, True
        await self._room.delete_checkpoints()

    def _is_due(self) -> bool:
        messages, seconds = self._every
        late = self._clock() - self._saved_at >= seconds
        return self._unsaved >= messages or (late and self._unsaved > 0)

    def _require_open(self) -> None:
        if self._ended:
            raise InvalidArgument("this session's short-term memory has ended", hint="Begin anew")


def _read_item(given: Mapping[str, Any]) -> Item:
    return Item(
        text=str(given["text"]),
        role=str(given["role"]),
        speaker=given.get("speaker"),
        message_id=given.get("message_id"),
    )
