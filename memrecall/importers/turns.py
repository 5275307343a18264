"""Prompts and answers of coding assistants, from hooks and from transcripts alike.

Both give the same words the same id, so that a session that the hooks have stored is not stored
again when its transcript is imported.
"""

import hashlib
import json

from memrecall.json_objects import make_storable

MAX_CHARACTERS = 100_000  # of one message; the rest is cut


def clean_turn(text: str) -> str:
    """Return what is stored of a prompt or an answer."""
    storable: str = make_storable(text)
    return storable.strip()[:MAX_CHARACTERS]


def turn_id(client: str, session: str, turn: str, role: str, text: str) -> str:
    """Return the id under which the same words are always stored."""
    source = json.dumps([client, session, turn, role, text]).encode()
    return f"hook-{hashlib.sha256(source).hexdigest()[:40]}"
