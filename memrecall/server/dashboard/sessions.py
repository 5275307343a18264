"""Who is signed in: tokens in cookies, and the keys that they were given for.

Kept in memory: whoever restarts the service signs everybody out, and no secret is written down.
"""

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

SESSION_SECONDS = 12 * 3600
MOST_SESSIONS = 10_000


@dataclass(frozen=True, slots=True)
class _Session:
    key_id: str
    until: float


class Sessions:
    """Tokens that stand for keys, for some hours. A key that is revoked opens nothing any more."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._open: OrderedDict[str, _Session] = OrderedDict()  # the oldest first

    def begin(self, key_id: str) -> str:
        """A new token for a key."""
        self._drop_old()
        token = secrets.token_urlsafe(32)
        self._open[_digest(token)] = _Session(key_id, self._clock() + SESSION_SECONDS)
        return token

    def key_of(self, token: str) -> str | None:
        """The id of the key that a token stands for; None if it stands for none."""
        session = self._open.get(_digest(token))
        return session.key_id if session and session.until > self._clock() else None

    def end(self, token: str) -> None:
        """Forget a token."""
        self._open.pop(_digest(token), None)

    def _drop_old(self) -> None:
        now = self._clock()
        while self._open:
            oldest = next(iter(self._open.values()))
            if oldest.until > now and len(self._open) < MOST_SESSIONS:
                return
            self._open.popitem(last=False)


def _digest(token: str) -> str:
    """What is kept of a token; to look one up takes no time that tells of its characters."""
    return hashlib.sha256(token.encode()).hexdigest()
