"""A simulated recall: runs the policy on prepared tool results and checks the loop's limits."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pydantic import BaseModel

from memrecall.agent.offline import Situation, decide_step
from memrecall.agent.state import ToolRun, Window
from memrecall.agent.tools.models import (
    ExpandContextWindowOutput,
    SearchMemoriesInput,
    SearchMemoriesOutput,
    ToolErrorCode,
    ToolFailure,
)
from memrecall.budget import Limit
from memrecall.messages import ConversationMessage
from memrecall.text.language import language_of
from memrecall.types import Role

MOST_STEPS = 12  # the loop's limit
Tool = Callable[[str, dict[str, Any]], BaseModel]


def situation(*messages: ConversationMessage, older: bool = False, iteration: int = 1) -> Situation:
    """Return the situation at the start of an iteration; the last message is the request."""
    *earlier, request = messages
    size = len(messages)
    return Situation(
        language=language_of(request.text),
        request=request.text,
        earlier=tuple(earlier),
        window=Window(size, iteration, shown=size, has_older=older),
    )


def user(text: str) -> ConversationMessage:
    return ConversationMessage(Role.USER, text)


def assistant(text: str) -> ConversationMessage:
    return ConversationMessage(Role.ASSISTANT, text)


def hit(key: str, text: str, score: float = 0.9, **fields: Any) -> dict[str, Any]:
    return {
        "memory_key": key,
        "summary": "",
        "content_preview": text,
        "relevance_score": score,
        "created_at": "2026-04-01T10:00:00+00:00",
        "memory_type": "message",
        "kind": "message",
        "role": "user",
        **fields,
    }


def search_result(*hits: dict[str, Any], **fields: Any) -> SearchMemoriesOutput:
    values = {"success": True, "total_found": len(hits), "results": hits, **fields}
    return SearchMemoriesOutput.model_validate(values)


def failure(code: str) -> ToolFailure:
    return ToolFailure(error=ToolErrorCode(code), message=code)


def expansion(*, approved: bool) -> ExpandContextWindowOutput:
    return ExpandContextWindowOutput(
        approved=approved, new_size=10, iteration=1, max_iterations=3, message=""
    )


def search_run(arguments: dict[str, Any], output: BaseModel) -> ToolRun:
    """Return a finished search, as the loop records it."""
    values = SearchMemoriesInput(**arguments).model_dump(mode="json", exclude_none=True)
    return ToolRun("search_memories", values, output, "", 0.0)


@dataclass
class SimulatedRecall:
    """The result of a simulation: the calls of the policy in order and its handoff arguments."""

    calls: list[str] = field(default_factory=list)
    thoughts: list[str] = field(default_factory=list)
    searches: list[dict[str, Any]] = field(default_factory=list)
    handoff: dict[str, Any] = field(default_factory=dict)
    expansion: dict[str, Any] | None = None

    @property
    def keys(self) -> list[str]:
        keys: list[str] = self.handoff["relevant_memory_keys"]
        return keys


def simulate(start: Situation, tool: Tool, last: Limit | None = None) -> SimulatedRecall:
    """Simulate one iteration; raise AssertionError if the policy breaks a limit of the loop."""
    recall = SimulatedRecall()
    runs: list[ToolRun] = list(start.runs)
    consecutive = 0
    for number in range(MOST_STEPS):
        last = last or (Limit.MODEL_CALLS if number == MOST_STEPS - 1 else None)
        step = decide_step(replace(start, runs=tuple(runs), last=last))
        assert step.calls, "a step without a call"
        recall.thoughts.append(step.thought or "")
        for call in step.calls:
            arguments = json.loads(call.arguments)
            recall.calls.append(call.name)
            assert last is None or call.name == "handoff"
            consecutive = consecutive + 1 if call.name == "search_memories" else 0
            assert consecutive <= 3, "four searches in a row"
            if call.name == "handoff":
                recall.handoff = arguments
                return recall
            output = tool(call.name, arguments)
            run = ToolRun(call.name, arguments, output, "", 0.0)
            if call.name == "search_memories":
                assert arguments not in recall.searches, "a search was repeated"
                recall.searches.append(arguments)
                run = search_run(arguments, output)
            elif isinstance(output, ExpandContextWindowOutput) and output.approved:
                recall.expansion = arguments
                return recall
            runs.append(run)
    raise AssertionError("no handoff within the limit")


def scripted_tools(*searches: BaseModel) -> Tool:
    """Return tools that answer searches in order, repeat the last answer and grant windows."""
    remaining = list(searches)

    def answer(name: str, arguments: dict[str, Any]) -> BaseModel:
        if name == "search_memories":
            return remaining.pop(0) if len(remaining) > 1 else remaining[0]
        if name == "expand_context_window":
            return expansion(approved=True)
        raise AssertionError(f"the policy called {name}")

    return answer


def ask(text: str, *searches: BaseModel) -> SimulatedRecall:
    """Simulate the recall of one message with prepared search results."""
    return simulate(situation(user(text)), scripted_tools(*searches))


def recall_window(
    messages: Sequence[ConversationMessage], *searches: BaseModel, **options: Any
) -> SimulatedRecall:
    """Simulate the recall of the last of some messages."""
    return simulate(situation(*messages, **options), scripted_tools(*searches))
