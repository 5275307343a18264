"""A server of embeddings on loopback that fails now and then, for a while."""

import asyncio
import json
import time
import zlib
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

MODEL = "soak"
DIMENSIONS = 64
_LEAST_HEAD = b"\r\n\r\n"


def vectors_of(texts: Sequence[str]) -> npt.NDArray[np.float32]:
    """Return a unit vector for each text, equal for equal texts."""
    seeds = (zlib.crc32(text.encode("utf-8", "replace")) for text in texts)
    rows = [np.random.default_rng(seed).standard_normal(DIMENSIONS) for seed in seeds]
    matrix = np.array(rows, dtype=np.float32)
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    return matrix


class EqualVectors:
    """The embedder of the server in this process, without its faults."""

    model = f"openai:{MODEL}"
    dimensions = DIMENSIONS

    async def embed(self, texts: Sequence[str]) -> npt.NDArray[np.float32]:
        """Return the vectors of texts."""
        return vectors_of(texts)

    async def close(self) -> None:
        """Do nothing."""


@dataclass(slots=True)
class FaultyEmbedder:
    """Answers OpenAI's requests for embeddings; fails in the last part of each period."""

    period: float = 20.0  # seconds
    fault: float = 3.0  # seconds of each period
    url: str = ""
    requests: int = 0
    failures: int = 0
    _began: float = field(default_factory=time.monotonic)

    def is_faulty(self, before: float = 0.0) -> bool:
        """Return True if the server fails now, or failed within so many seconds before."""
        now = (time.monotonic() - self._began) % self.period
        ended = now if time.monotonic() - self._began >= self.period else self.period
        return now >= self.period - self.fault or ended < before

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer the requests of one connection."""
        try:
            while True:
                head = (await reader.readuntil(_LEAST_HEAD)).decode("latin-1").lower()
                length = int(head.partition("content-length:")[2].partition("\r\n")[0])
                request = json.loads(await reader.readexactly(length))
                writer.write(self._respond(request["input"]))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # The client has closed the connection.
        finally:
            writer.close()

    def _respond(self, texts: Sequence[str]) -> bytes:
        self.requests += 1
        if self.is_faulty():
            self.failures += 1
            return b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n"
        rows = enumerate(vectors_of(texts).tolist())
        data = [{"index": index, "embedding": row} for index, row in rows]
        body = json.dumps({"data": data}).encode()
        head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}"
        return head.encode() + _LEAST_HEAD + body


@asynccontextmanager
async def faulty_embedder(period: float, fault: float) -> AsyncIterator[FaultyEmbedder]:
    """Serve embeddings while the block runs."""
    embedder = FaultyEmbedder(period, fault)
    server = await asyncio.start_server(embedder.answer, "127.0.0.1", 0)
    embedder.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    async with server:
        yield embedder
