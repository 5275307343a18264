"""Slow-client protection: a time and size limit for the headers of a request.

uvicorn has a timeout for idle connections only: a client that sends its headers slowly would keep
its connection forever. The middleware limits the time and size of bodies, uvicorn the number of
connections, and the parser refuses ambiguous framing. A proxy in front does the rest.
"""

import asyncio
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

HEAD_SECONDS = 10.0
HEAD_BYTES = 32 * 1024  # the filters of a list take up to 20,000 characters


class GuardedProtocol(HttpToolsProtocol):
    """uvicorn's protocol, which closes a connection whose headers are slow or too long."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._head_timer: asyncio.TimerHandle | None = None
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Wait for the first headers."""
        super().connection_made(transport)
        self._expect_head()

    def data_received(self, data: bytes) -> None:
        """Parse a part of a request; refuse headers that are still incomplete and too long."""
        if self._head_timer is None and (self.cycle is None or self.cycle.response_complete):
            self._expect_head()
        super().data_received(data)
        if self._head_timer is not None:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES and not self.transport.is_closing():
                self.send_400_response(f"The headers are larger than {HEAD_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        """Stop waiting for the headers, and serve the request."""
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self._stop_timer()
        super().connection_lost(exc)

    def _expect_head(self) -> None:
        self._head_bytes = 0
        self._head_timer = self.loop.call_later(HEAD_SECONDS, self.transport.close)

    def _stop_timer(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None
