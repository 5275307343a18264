"""Answers of models, and what every recall and every request must look like whatever they are."""

import json
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from autogen_core.models import ChatCompletionClient, CreateResult

from memrecall.agent import Recaller, RecallOptions, RecallResult, StopReason
from memrecall.budget import Limits
from memrecall.memory import Library
from memrecall.model.client import BaseClient, Request

from ...model.openai_server import ModelServer, Reply, completion
from ..recall_helpers import ANN, NOW, REQUEST

SEARCH = {"query": "database config port pool", "min_relevance_score": 0.0}
HANDOFF = {"reason": "found", "search_summary": "port 5433", "confidence": 0.9}
LARGEST_REQUEST = 120_000  # bytes: the largest prompt, and JSON around it
Check = Callable[[RecallResult, ModelServer], None]
Forever = Reply | Callable[[dict[str, Any]], Reply]


@dataclass(frozen=True)
class Behaviour:
    """A model's answers, then `forever`, and the outcome of the recall."""

    name: str
    replies: tuple[Reply, ...]
    reason: StopReason
    is_fallback: bool = False
    forever: Forever | None = None
    limits: Limits = field(default_factory=lambda: Limits(seconds=600))  # for busy machines
    check: Check | None = None


class StreamedClient(BaseClient):
    """A client that gets every answer as a stream."""

    def __init__(self, inner: ChatCompletionClient) -> None:
        super().__init__(str(getattr(inner, "model", "")), inner.model_info)
        self._inner = inner

    async def _answer(self, request: Request) -> CreateResult:
        parts = [
            p async for p in self._inner.create_stream(request.messages, **request.arguments())
        ]
        assert isinstance(parts[-1], CreateResult)
        return parts[-1]


def call(name: str, arguments: object, call_id: str | None = None) -> dict[str, Any]:
    """Return a tool call of an answer; arguments that are not text are written as JSON."""
    text = arguments if isinstance(arguments, str) else json.dumps(arguments)
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": text}}


def answer(*calls: dict[str, Any], finish: str = "tool_calls", **fields: Any) -> Reply:
    """Return an answer with calls; `fields` are those of the message, and `usage`."""
    options = {"usage": fields.pop("usage")} if "usage" in fields else {}
    return completion({"content": None, "tool_calls": list(calls), **fields}, finish, **options)


def search(**arguments: Any) -> Reply:
    return answer(call("search_memories", {**SEARCH, **arguments}))


def hand_off(*keys: str, **arguments: Any) -> Reply:
    return answer(call("handoff", {**HANDOFF, "relevant_memory_keys": keys, **arguments}))


async def recall(
    library: Library,
    server: ModelServer,
    client: ChatCompletionClient,
    behaviour: Behaviour,
    *,
    streamed: bool = False,
) -> RecallResult:
    """Run a recall with a model of this behaviour."""
    server.script.clear()
    server.requests.clear()
    server.play(*behaviour.replies)
    forever = behaviour.forever
    server.answer = (lambda _: forever) if isinstance(forever, Reply) else forever
    model = StreamedClient(client) if streamed else client
    options = RecallOptions(limits=behaviour.limits)
    return await Recaller(library, ANN, model, options, clock=lambda: NOW).recall(REQUEST)


def check_outcome(behaviour: Behaviour, result: RecallResult, server: ModelServer) -> None:
    """Check the expected outcome, and what holds for every recall."""
    assert result.stop_reason is behaviour.reason, (result.stop_reason, result.problem)
    assert result.fallback == (behaviour.reason.value if behaviour.is_fallback else None)
    assert not behaviour.is_fallback or (result.problem and result.judged)
    json.loads(result.model_dump_json())
    json.dumps(result.trace.as_dict(), ensure_ascii=False).encode()
    assert len(result.handoff.search_summary) < 5_000
    times = 2 if behaviour.is_fallback else 1  # the offline policy gets the same limits again
    assert result.usage["tool_calls"] <= times * behaviour.limits.tool_calls
    assert result.usage["model_calls"] <= times * behaviour.limits.model_calls
    for request in server.requests:
        assert len(json.dumps(request, ensure_ascii=False)) < LARGEST_REQUEST
        check_transcript(request["messages"])
    if behaviour.check is not None:
        behaviour.check(result, server)


def check_transcript(messages: list[dict[str, Any]]) -> None:
    """Check that every call is valid and directly followed by its result."""
    position, ids = 0, []
    while position < len(messages):
        calls = messages[position].get("tool_calls") or []
        results = messages[position + 1 : position + 1 + len(calls)]
        assert [m["tool_call_id"] for m in results] == [c["id"] for c in calls]
        for each in calls:
            assert isinstance(json.loads(each["function"]["arguments"]), dict)
            assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", each["function"]["name"])
        ids += [c["id"] for c in calls]
        position += 1 + len(calls)
    assert len(set(ids)) == len(ids)
