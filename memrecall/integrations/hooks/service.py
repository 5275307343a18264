"""A minimal HTTP client for the memrecall service. Standard library only: see the package."""

import json
import socket
import time
from typing import Any

from memrecall.integrations.hooks.binding import Binding, HookError, parse_url

_MAX_RESPONSE = 4_000_000  # bytes


class ServiceConnection:
    """A connection to the service that ends at a deadline."""

    def __init__(self, stream: socket.socket, host: str, key: str, deadline: float) -> None:
        self._stream = stream
        self._reader = stream.makefile("rb")
        self._host = host
        self._key = key
        self._deadline = deadline

    @classmethod
    def open(cls, binding: Binding, deadline: float) -> "ServiceConnection | None":
        """Connect to the service of a binding; None if none listens there."""
        uses_tls, host, port = parse_url(binding.url, allow_remote=binding.allow_remote)
        try:
            stream = socket.create_connection((host, port), _remaining(deadline))
        except OSError:
            return None
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if uses_tls:
            import ssl

            stream = ssl.create_default_context().wrap_socket(stream, server_hostname=host)
        return cls(stream, host, binding.key, deadline)

    def post(self, path: str, body: dict[str, Any], accept: str) -> tuple[int, bytes]:
        """Send a request and return the status and the body of the response."""
        content = json.dumps(body).encode()
        host = f"[{self._host}]" if ":" in self._host else self._host
        head = [f"POST {path} HTTP/1.1", f"Host: {host}", f"Accept: {accept}"]
        head += ["Content-Type: application/json", f"Content-Length: {len(content)}"]
        if self._key:
            head.append(f"Authorization: Bearer {self._key}")
        self._stream.settimeout(_remaining(self._deadline))
        self._stream.sendall("\r\n".join([*head, "", ""]).encode() + content)
        return self._read_response()

    def _read_response(self) -> tuple[int, bytes]:
        status = self._reader.readline(1_000).split(b" ", 2)
        length = 0
        for _ in range(100):
            name, _, value = self._reader.readline(10_000).partition(b":")
            if not value:
                break
            if name.lower() == b"content-length":
                length = int(value)
        if len(status) < 2 or length > _MAX_RESPONSE:
            raise HookError("what answers at the address of the service is no memrecall service")
        self._stream.settimeout(_remaining(self._deadline))
        return int(status[1]), self._reader.read(length)

    def close(self) -> None:
        """Close the connection."""
        self._reader.close()
        self._stream.close()


def _remaining(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimeoutError("the deadline has passed")
    return seconds
