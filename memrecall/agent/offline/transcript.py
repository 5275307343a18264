"""What has happened so far in an iteration, read back from the conversation with the loop."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResultMessage,
    LLMMessage,
)

from memrecall.budget import Limit

if TYPE_CHECKING:
    from memrecall.agent.prompt_view import Briefing

SEARCH = "search_memories"
DETAIL = "get_memory_detail"
EXPAND = "expand_context_window"
HANDOFF = "handoff"
KEYWORDS = "extract_search_keywords"
REFUSED = "too_many_searches"  # the code of a search that was not made


@dataclass(frozen=True, slots=True)
class ToolStep:
    """A call and its answer. An answer that was cut short or lost has no fields."""

    tool: str
    arguments: dict[str, Any]
    answer: dict[str, Any]

    @property
    def error(self) -> str | None:
        """The code of what went wrong; None where the answer is good."""
        if not self.answer:
            return "unreadable"
        failed = self.answer.get("success") is False or "error" in self.answer
        return str(self.answer.get("error", "unknown")) if failed else None

    @property
    def results(self) -> list[dict[str, Any]]:
        """The hits of a search."""
        found = self.answer.get("results")
        return [r for r in found if _is_hit(r)] if isinstance(found, list) else []


@dataclass(frozen=True, slots=True)
class Transcript:
    """One iteration until now: the briefing, the steps after it, and whether it must end."""

    briefing: "Briefing"
    steps: tuple[ToolStep, ...] = field(default=())
    last_for: Limit | None = None  # the limit that leaves room for a handoff alone

    @property
    def searches(self) -> list[ToolStep]:
        """The searches of this iteration, also those that failed."""
        return [step for step in self.steps if step.tool == SEARCH]

    @property
    def details(self) -> list[ToolStep]:
        """The readings of single memories."""
        return [step for step in self.steps if step.tool == DETAIL]

    @property
    def in_a_row(self) -> int:
        """How many searches stand at the end with nothing else between them."""
        count = 0
        for step in reversed(self.steps):
            if step.tool != SEARCH:
                break
            count += 1
        return count

    @property
    def refusals(self) -> int:
        """How many searches were refused because too many came in a row."""
        return sum(step.error == REFUSED for step in self.searches)

    @property
    def barren(self) -> int:
        """How many of the last searches worked but brought no key that was not seen before."""
        seen = {str(line["memory_key"]) for line in self.briefing.found}
        count = 0
        for step in self.steps:
            keys = _keys(step)
            if step.tool == SEARCH and step.error is None:
                count = 0 if keys - seen else count + 1
            seen |= keys
        return count

    @property
    def expansion_refused(self) -> bool:
        """Whether a larger window was asked for in vain."""
        return any(step.tool == EXPAND for step in self.steps)


def read_transcript(messages: Sequence[LLMMessage]) -> Transcript:
    """The briefing and the steps of a conversation between the loop and its model."""
    # Imported late: the briefing knows the tools, and one of the tools uses these rules.
    from memrecall.agent.prompt_view import read_briefing, read_last_call

    first, hint = messages[0].content, messages[-1].content
    return Transcript(
        read_briefing(first if isinstance(first, str) else ""),
        tuple(_steps(messages)),
        read_last_call(hint) if isinstance(hint, str) else None,
    )


def _steps(messages: Sequence[LLMMessage]) -> Iterator[ToolStep]:
    answers = {
        result.call_id: result.content
        for message in messages
        if isinstance(message, FunctionExecutionResultMessage)
        for result in message.content
    }
    for message in messages:
        if isinstance(message, AssistantMessage) and not isinstance(message.content, str):
            for call in message.content:
                yield _step(call, answers.get(call.id, ""))


def _step(call: FunctionCall, answer: str) -> ToolStep:
    return ToolStep(call.name, _load(call.arguments), _load(answer))


def _load(text: str) -> dict[str, Any]:
    """A JSON object; what is not one, or was cut, is empty."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _keys(step: ToolStep) -> set[str]:
    """The keys that an answer shows: hits, or what was said around a memory."""
    around = (step.answer.get(name) for name in ("before", "after", "sources"))
    near = [line for lines in around if isinstance(lines, list) for line in lines]
    return {str(line["memory_key"]) for line in (*step.results, *filter(_is_hit, near))}


def _is_hit(value: object) -> bool:
    return isinstance(value, dict) and isinstance(value.get("memory_key"), str)
