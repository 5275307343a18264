"""Requests of `memrecall hook` to the service. Standard library only: see the package."""

import json
import socket
import time
from typing import Any, NamedTuple

from memrecall.integrations.hooks.binding import Binding, HookError, parse_url, write_head
from memrecall.integrations.hooks.client import exchange


class NoService(HookError):
    """Nothing listens at the address of the service."""


class ServiceAccess(NamedTuple):
    """The service of a binding, used until a deadline."""

    binding: Binding
    deadline: float

    def post(self, path: str, body: dict[str, Any], accept: str) -> tuple[int, bytes]:
        """Send a request and return the status and the body of the response."""
        binding = self.binding
        uses_tls, host, port = parse_url(binding.url, allow_remote=binding.allow_remote)
        seconds = self.deadline - time.monotonic()
        if seconds <= 0:
            raise TimeoutError("the deadline has passed")
        try:
            stream = socket.create_connection((host, port), seconds)
        except OSError as error:
            raise NoService(f"no service answers at {binding.url}") from error
        stream.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if uses_tls:
            import ssl

            stream = ssl.create_default_context().wrap_socket(stream, server_hostname=host)
        head = write_head(path, host, binding.key, f"Accept: {accept}")
        return exchange(stream, head, json.dumps(body).encode(), self.deadline)
