"""An event of a client, from its JSON to what may be stored and recalled for."""

import os
from typing import NamedTuple

from memrecall.integrations.hooks.binding import Binding, HookError
from memrecall.integrations.hooks.clients import CLIENTS, Client, HookEvent
from memrecall.integrations.hooks.ignore import is_ignored
from memrecall.integrations.hooks.payload import CapturedMessage, parse_payload
from memrecall.integrations.hooks.redaction import redact_patterns, redact_secrets


class CapturedEvent(NamedTuple):
    """An event that is not ignored, without secrets."""

    client: Client
    event: HookEvent
    session_id: str
    workspace: str
    messages: tuple[CapturedMessage, ...]  # at least one

    @property
    def recalls(self) -> bool:
        """Whether the client shows its model what is recalled for the first message."""
        return self.event.recalls and self.client.can_inject

    def format_output(self, block: str) -> str:
        """Return what the client expects a hook to print; "" for no block."""
        return self.client.format_output(self.event.name, block) if block else ""


def read_event(binding: Binding, event_name: str, data: bytes) -> CapturedEvent | None:
    """Return the event of a client's JSON; None if it has no text or a folder is ignored."""
    client = CLIENTS.get(binding.client)
    event = client.event(event_name) if client else None
    if client is None or event is None:
        raise HookError("the client has no such event; install the hooks again")
    payload = parse_payload(client, event, data)
    redacted = (each._replace(content=_redact(binding, each.content)) for each in payload.messages)
    messages = tuple(each for each in redacted if each.content)
    folders = payload.folders or (binding.workspace or os.getcwd(),)
    if not messages or any(map(is_ignored, folders)):
        return None
    workspace = binding.workspace or _find_workspace(folders[0])
    return CapturedEvent(client, event, payload.session_id, workspace, messages)


def _redact(binding: Binding, text: str) -> str:
    text = redact_secrets(text) if binding.redact else text
    return redact_patterns(text, binding.redact_patterns)


def _find_workspace(folder: str) -> str:
    """Return the repository that a folder belongs to, or the folder itself."""
    top = folder = os.path.realpath(folder)
    while not os.path.exists(os.path.join(top, ".git")):
        above = os.path.dirname(top)
        if above == top:
            return folder
        top = above
    return top
