"""A simulated recall: runs the rule against prepared tool answers and checks the loop's rules."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    UserMessage,
)

from memrecall.agent.offline.policy import decide_recall_turn
from memrecall.model.prompts import RuleCall, RuleRequest

TOOLS = (
    "search_memories",
    "get_memory_detail",
    "extract_search_keywords",
    "expand_context_window",
    "handoff",
)
MOST_TURNS = 12  # the loop's limit on model calls
Tool = Callable[[RuleCall], str]


def briefing(
    messages: Sequence[dict[str, Any]],
    *,
    older: bool = False,
    iteration: int = 1,
    extra_lines: Sequence[dict[str, Any]] = (),
) -> str:
    """Return a briefing as the loop writes it."""
    head = {
        "now": "2026-04-21T09:00:00+00:00",
        "weekday": "Tuesday",
        "time_zone": "UTC",
        "iteration": iteration,
        "max_iterations": 3,
        "window": len(messages),
        "older_messages": older,
    }
    lines = [{"n": n, **message} for n, message in enumerate(messages, 1)]
    return "\n".join(json.dumps(line, ensure_ascii=False) for line in (head, *lines, *extra_lines))


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "text": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "text": text}


def hit(key: str, text: str, score: float = 0.9, **fields: Any) -> dict[str, Any]:
    return {
        "memory_key": key,
        "content_preview": text,
        "relevance_score": score,
        "created_at": "2026-04-01T10:00:00+00:00",
        "memory_type": "message",
        "role": "user",
        **fields,
    }


def search_answer(*hits: dict[str, Any], **fields: Any) -> str:
    answer = {"total_found": len(hits), "returned": len(hits), "results": list(hits), **fields}
    return json.dumps(answer, ensure_ascii=False)


def failed_search(code: str) -> str:
    return json.dumps(
        {"success": False, "total_found": 0, "results": [], "error": code, "message": code}
    )


@dataclass
class SimulatedRecall:
    """The result of a simulation: the rule's calls in order and its handoff arguments."""

    calls: list[RuleCall] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    accepted_searches: list[dict[str, Any]] = field(
        default_factory=list
    )  # searches that were not refused
    handoff: dict[str, Any] | None = None
    expansion: dict[str, Any] | None = None

    @property
    def searches(self) -> list[dict[str, Any]]:
        return [call.arguments for call in self.calls if call.name == "search_memories"]


def simulate(text: str, tool: Tool, *, tools: tuple[str, ...] = TOOLS) -> SimulatedRecall:
    """Simulate one iteration; raise AssertionError if the rule breaks a limit of the loop."""
    messages: list[LLMMessage] = [UserMessage(content=text, source="memrecall")]
    recall = SimulatedRecall()
    consecutive = 0
    for turn in range(MOST_TURNS):
        forced = "handoff" if turn == MOST_TURNS - 1 else None
        request = RuleRequest("recall", "en", tuple(messages), tools, forced, True)
        answer = decide_recall_turn(request)
        assert answer.calls, "a turn without a call"
        recall.thoughts.append(answer.thought)
        results: list[FunctionExecutionResult] = []
        calls: list[FunctionCall] = []
        for call in answer.calls:
            assert call.name in ((forced,) if forced else tools)
            json.dumps(call.arguments)
            name = f"call_{len(recall.calls)}"
            if call.name == "search_memories":
                assert call.arguments not in recall.accepted_searches, "a search was repeated"
                consecutive += 1
                assert consecutive <= 3, "four searches in a row"
            else:
                consecutive = 0
            recall.calls.append(call)
            if call.name == "handoff":
                recall.handoff = call.arguments
                return recall
            output = tool(call)
            if call.name == "search_memories" and "too_many_searches" not in output:
                recall.accepted_searches.append(call.arguments)
            if call.name == "expand_context_window" and json.loads(output).get("approved"):
                recall.expansion = call.arguments
                return recall
            arguments = json.dumps(call.arguments, ensure_ascii=False)
            calls.append(FunctionCall(id=name, name=call.name, arguments=arguments))
            results.append(
                FunctionExecutionResult(
                    content=output, name=call.name, call_id=name, is_error=False
                )
            )
        messages.append(AssistantMessage(content=calls, source="memrecall"))
        messages.append(FunctionExecutionResultMessage(content=results))
    raise AssertionError("no handoff within the limit")
