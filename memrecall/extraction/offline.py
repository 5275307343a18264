"""Rules that answer the prompts of extraction for the offline client."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

from memrecall import model
from memrecall.extraction.decisions import decide
from memrecall.extraction.protocol import Fact, KnownMemory
from memrecall.extraction.rules.conversation import build_facts, read_statements
from memrecall.extraction.stated_graph import build_graph
from memrecall.extraction.summaries import summarise
from memrecall.extraction.wire import read_number, read_time, read_utterance, read_zone
from memrecall.model.prompts import Rule, RuleAnswer, RuleRequest
from memrecall.types import Language, format_time

# Prompts without a time get a fixed one, so that equal prompts get equal answers.
_NO_TIME = datetime(2000, 1, 1, tzinfo=UTC)


def _answer_facts(request: RuleRequest) -> RuleAnswer:
    lines = list(request.json_lines())
    now, zone = _setting(lines)
    messages = [line for line in lines if "text" in line]
    utterances = [read_utterance(line) for line in messages if not line.get("context")]
    context = [read_utterance(line) for line in messages if line.get("context")]
    facts = build_facts(read_statements(utterances, now=now, zone=zone, context=context))
    return _json({"facts": [_fact(fact) for fact in facts]})


def _answer_decide(request: RuleRequest) -> RuleAnswer:
    lines = list(request.json_lines())
    known = [_read_known(line) for line in lines if "known" in line]
    facts = {_number(line["fact"]): _read_fact(line) for line in lines if "fact" in line}
    numbers = {id(fact): number for number, fact in facts.items()}
    decisions = [
        {
            "fact": numbers[id(decision.fact)],
            "event": decision.event,
            "known": int(decision.memory_key) if decision.memory_key else None,
            "reason": decision.reason,
        }
        for decision in decide(list(facts.values()), known)
    ]
    return _json({"decisions": decisions})


def _answer_relations(request: RuleRequest) -> RuleAnswer:
    lines = list(request.json_lines())
    now, _ = _setting(lines)
    utterances = [read_utterance(line) for line in lines if "text" in line]
    graph = build_graph(utterances, now=now)
    items = [
        {
            "source": relation.source,
            "relationship": relation.relationship,
            "destination": relation.destination,
            "sources": [_number(source) for source in relation.source_ids],
            "since": relation.valid_from and format_time(relation.valid_from),
            "ended": relation.ended,
        }
        for relation in graph.relations
    ]
    nodes = [{"name": entity.name, "type": entity.type} for entity in graph.entities]
    return _json({"entities": nodes, "relations": items})


def _answer_summarise(request: RuleRequest) -> RuleAnswer:
    lines = list(request.json_lines())
    limit = next((line["limit"] for line in lines if isinstance(line.get("limit"), int)), 1_000)
    items = [
        read_utterance(line) if "role" in line else str(line["text"])
        for line in lines
        if "text" in line
    ]
    requested = next((line["language"] for line in lines if "language" in line), None)
    language: Language | None = requested if requested in ("en", "zh") else None
    return _json({"summary": summarise(items, limit, language)})


EXTRACTION_RULES: dict[str, Rule] = {
    "extract_facts": _answer_facts,
    "decide": _answer_decide,
    "extract_relations": _answer_relations,
    "summarise": _answer_summarise,
}
"""A rule for each prompt of extraction, by the prompt's name."""


def offline_client() -> model.RuleClient:
    """Return a client that answers the extraction prompts by rules; a recall uses rules too."""
    return model.RuleClient(EXTRACTION_RULES)


def _setting(lines: list[dict[str, Any]]) -> tuple[datetime, Any]:
    setting = next((line for line in lines if "now" in line), {})
    return read_time(setting.get("now")) or _NO_TIME, read_zone(setting.get("zone", "UTC"))


def _number(value: object) -> int:
    return read_number(value) or 0


def _fact(fact: Fact) -> dict[str, Any]:
    return {
        "text": fact.text,
        "about": fact.subject,
        "type": fact.memory_type,
        "field": fact.field,
        "sources": [_number(source) for source in fact.source_ids],
        "since": fact.valid_from and format_time(fact.valid_from),
        "negated": fact.negated,
    }


def _read_fact(line: dict[str, Any]) -> Fact:
    return Fact(
        str(line.get("text", "")),
        str(line.get("about", "user")),
        line.get("type", "general"),
        line.get("field"),
        negated=bool(line.get("negated")),
    )


def _read_known(line: dict[str, Any]) -> KnownMemory:
    return KnownMemory(
        str(_number(line["known"])),
        str(line.get("text", "")),
        str(line.get("about", "user")),
        line.get("field"),
        str(line.get("type", "general")),
        read_time(line.get("since")),
    )


def _json(value: dict[str, Any]) -> RuleAnswer:
    return RuleAnswer(text=json.dumps(value, ensure_ascii=False))
