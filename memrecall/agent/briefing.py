"""What the recall agent is told at the start of an iteration and before each turn.

Everything that varies stands here, after the static prompt. The briefing is one message of JSON
lines that a model reads and that the offline rules read back with `read_briefing`.
"""

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from memrecall.agent.conversation import Utterance
from memrecall.agent.desk import Desk
from memrecall.agent.notes import SEARCHES_IN_A_ROW
from memrecall.agent.phrases import say
from memrecall.agent.rendering import to_json
from memrecall.agent.tools.registry import EXPANSION, MEMRECALL_TOOLS
from memrecall.budget import Budget, Limit

WINDOW_CHARACTERS = 12_000
_SHORTEST = 120
_LONGEST = 2_000
_FOUND_SHOWN = 8
_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def write_briefing(desk: Desk, window: list[Utterance]) -> str:
    """The first message of an iteration: time, window, conversation, what was found before."""
    now = desk.now.astimezone(desk.zone)
    head = {
        "now": desk.local(desk.now),
        "weekday": _WEEKDAYS[now.weekday()],
        "time_zone": desk.zone.key,
        "iteration": desk.window.iteration,
        "max_iterations": desk.window.max_iterations,
        "window": len(window),
        "older_messages": desk.window.older_exist,
    }
    lines = [to_json(head), say(desk.language, "conversation")]
    lines += [
        to_json(_message_fields(desk, said, at, len(window))) for at, said in enumerate(window, 1)
    ]
    lines += _found_lines(desk)
    return "\n".join(lines)


def _message_fields(desk: Desk, said: Utterance, number: int, count: int) -> dict[str, Any]:
    room = min(max(WINDOW_CHARACTERS // count, _SHORTEST), _LONGEST)
    text = said.text
    if len(text) > room:
        text = text[:room] + say(desk.language, "message_cut", total=len(said.text))
    fields = {
        "n": number,
        "role": said.role.value,
        "speaker": said.speaker,
        "time": said.ts and desk.local(said.ts),
        "text": text,
    }
    return {name: value for name, value in fields.items() if value is not None}


def _found_lines(desk: Desk) -> list[str]:
    if desk.window.iteration == 1:
        return []
    best = sorted(desk.notes.hits.values(), key=lambda hit: (-hit.score, hit.key))[:_FOUND_SHOWN]
    lines = [say(desk.language, "found_earlier")] if best else []
    lines += [
        to_json(
            {
                "memory_key": hit.key,
                "content_preview": (hit.summary or hit.content)[:_SHORTEST],
                "relevance_score": round(hit.score, 3),
                "created_at": desk.local(hit.ts),
            }
        )
        for hit in best
    ]
    tried = desk.notes.searches
    lines += [say(desk.language, "tried_earlier")] if tried else []
    lines += [to_json({**note.arguments, "total_found": note.total_found}) for note in tried]
    return lines


def write_hint(desk: Desk, budget: Budget, *, last: Limit | None) -> str:
    """The last message before a turn, not kept: what is left, and what is possible now.

    Nothing of the clock is in it: a replayed run must send the same words.
    """
    if last is not None:
        return say(desk.language, "last_call", limit=last)
    return say(
        desk.language,
        "turn_hint",
        model_calls=budget.limits.model_calls - budget.usage.model_calls,
        tool_calls=budget.limits.tool_calls - budget.usage.tool_calls,
        tools=", ".join(possible_tools(desk)),
    )


def read_last_call(hint: str) -> Limit | None:
    """The limit that a hint names as the reason why nothing but a handoff is left."""
    for limit in Limit:
        if hint in (say("en", "last_call", limit=limit), say("zh", "last_call", limit=limit)):
            return limit
    return None


def possible_tools(desk: Desk) -> list[str]:
    """The tools that would not be refused now."""
    closed = set() if desk.window.can_grow else {EXPANSION}
    if desk.notes.in_a_row >= SEARCHES_IN_A_ROW:
        closed.add("search_memories")
    return [name for name in MEMRECALL_TOOLS if name not in closed]


@dataclass(frozen=True, slots=True)
class Briefing:
    """A briefing as the offline rules read it."""

    now: datetime
    time_zone: str
    iteration: int
    max_iterations: int
    window: int
    older_messages: bool
    messages: tuple[dict[str, Any], ...]  # n, role, perhaps speaker and time, text
    found: tuple[dict[str, Any], ...]  # memory_key, content_preview, relevance_score, created_at
    tried: tuple[dict[str, Any], ...]  # the arguments of earlier searches, and total_found


def read_briefing(text: str) -> Briefing:
    """The inverse of `write_briefing`."""
    head, *rest = [json.loads(line) for line in text.split("\n") if line.startswith("{")]
    return Briefing(
        now=datetime.fromisoformat(head["now"]),
        time_zone=head["time_zone"],
        iteration=head["iteration"],
        max_iterations=head["max_iterations"],
        window=head["window"],
        older_messages=head["older_messages"],
        messages=tuple(line for line in rest if "n" in line),
        found=tuple(line for line in rest if "memory_key" in line),
        tried=tuple(line for line in rest if "query" in line),
    )
