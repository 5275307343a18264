"""The rules of the prompts that are answered with one JSON object."""

import json
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime
from typing import Any
from zoneinfo import ZoneInfo

from autogen_core.models import LLMMessage

from memrecall.agent.offline.keywords import expand_terms, extract_typed_keywords
from memrecall.agent.offline.needs import needs_recall
from memrecall.model.offline import RuleAnswer, RuleRequest

_USUAL_KEYWORDS = 5
# Keywords show the words of a time, not the dates it means: any moment will do.
_ANY_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def keywords_answer(request: RuleRequest) -> RuleAnswer:
    """The prompt `keywords`: the telling words of a query with their weights and kinds."""
    asked: dict[str, Any] = next(_objects(request.messages), {})
    query = str(asked.get("query") or "")
    limit = asked.get("max_keywords")
    count = limit if isinstance(limit, int) else _USUAL_KEYWORDS
    context = str(asked.get("context") or "") or None
    words = extract_typed_keywords(query, context, count, _ANY_TIME, ZoneInfo("UTC"))
    told = [{"keyword": w.word, "weight": w.weight, "type": w.type} for w in words]
    expanded = " ".join(dict.fromkeys([*(w.word for w in words), *expand_terms(query)]))
    return _json({"keywords": told, "expanded_query": expanded})


def needs_recall_answer(request: RuleRequest) -> RuleAnswer:
    """The prompt `needs_recall`: whether the last message needs a look into the past."""
    lines = [line for line in _objects(request.messages) if "text" in line]
    said = [str(line["text"]) for line in lines]
    by_user = [i for i, line in enumerate(lines) if line.get("role", "user") == "user"]
    place = by_user[-1] if by_user else len(said) - 1
    if place < 0:
        return _json({"needed": False})
    return _json({"needed": needs_recall(said[place], said[:place]).needed})


def _objects(messages: Iterable[LLMMessage]) -> Iterator[dict[str, Any]]:
    """The JSON objects of the messages, one a line; other lines are left out."""
    for message in messages:
        if isinstance(message.content, str):
            for line in message.content.split("\n"):
                try:
                    value = json.loads(line)
                except (ValueError, RecursionError):
                    continue
                if isinstance(value, dict):
                    yield value


def _json(value: dict[str, Any]) -> RuleAnswer:
    return RuleAnswer(text=json.dumps(value, ensure_ascii=False))
