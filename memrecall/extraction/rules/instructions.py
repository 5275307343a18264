"""Instructions to the assistant: lasting orders, and what to forget, remember or settle on."""

import re
from typing import NamedTuple

from memrecall.extraction.rules.tables import LanguageTable


class Order(NamedTuple):
    """A lasting instruction: the sentence, what to do, how it was put, and the slot it fills."""

    text: str
    action: str
    kind: str
    field: str | None


def read_order(table: LanguageTable, text: str) -> Order | None:
    """Return the lasting instruction of a sentence, or None."""
    matches = ((kind, pattern.match(text)) for kind, pattern in table.patterns("orders"))
    kind, match = next(((kind, match) for kind, match in matches if match), ("", None))
    if match is None:
        return None
    action = re.sub(r",? please$", "", match["what"].strip(), flags=re.IGNORECASE)
    if kind != "when" and table.search("one_time_order", text):
        return None
    is_order = not table.match("no_order", action) and table.search("order_verb", action)
    if kind == "when" and not is_order:
        return None
    slots = table.patterns("order_slots")
    field = next((slot for slot, pattern in slots if pattern.search(action)), None)
    return Order(text, action, kind, field)


def read_choice(table: LanguageTable, text: str) -> str | None:
    """Return what "let us …" settles, or None."""
    match = table.match("choice", text)
    return "".join(match.groupdict().values()) if match else None


def read_forget(table: LanguageTable, text: str) -> str | None:
    """Return what the assistant is asked to forget, or None if it is not said."""
    match = table.match("forget", text)
    if match is None or table.match("own_forgetting", text) or table.search("forget_later", text):
        return None
    groups = match.groupdict()
    topic = (groups["what"] or groups.get("that") or "").strip("，, ")
    return topic if topic and not table.fullmatch("forget_nothing", topic) else None


def read_remember(table: LanguageTable, text: str) -> str | None:
    """Return what the assistant is asked to remember; something to do is not meant."""
    match = table.match("remember", text)
    if match is None or table.match("remember_to_do", match["what"]):
        return None
    return match["what"].strip(" ,:，：")
