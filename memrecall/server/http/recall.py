"""`POST /v1/users/{user_id}/recall`: the result at the end, or events as they happen."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass, replace

from fastapi import APIRouter, Request, Response
from pydantic_core import to_json

from memrecall.agent import Recaller, RecallOptions, RecallResult
from memrecall.agent.autogen.events import stream_recall
from memrecall.agent.leaks import leaked_families
from memrecall.agent.outcome import StopReason
from memrecall.agent.trace import CallEvent, StopEvent, TraceEvent
from memrecall.budget import Limits
from memrecall.errors import StorageError
from memrecall.scope import Scope
from memrecall.server.http.message_models import PathId, RecallLimits, RecallRequest
from memrecall.server.http.openapi import documented
from memrecall.server.http.service import Asked, Asking
from memrecall.server.http.streaming import (
    EVENT_STREAM,
    EventStream,
    ServerEvent,
    wants_events,
    while_listened,
)
from memrecall.server.http.wire import MEDIA_TYPE, StrictRoute
from memrecall.server.live import LiveRecall

router = APIRouter(prefix="/v1", tags=["recall"], route_class=StrictRoute)


@router.post(
    "/users/{user_id}/recall",
    **documented("recall", RecallResult, 400, 404, 413, 415, 429, also=EVENT_STREAM),
)
async def recall(user_id: PathId, body: RecallRequest, request: Request, asked: Asked) -> Response:
    """Find what the last user message refers to. With `Accept: text/event-stream` the events of
    the trace come as they happen, and at the end `done` with the result, or `error`.
    """
    scope = asked.principal.scope(user_id, body.session_id)
    asked.notes["query_chars"] = body.characters()
    run = RecallRun(asked, scope, body)
    closing = asked.service.closing
    if wants_events(request.headers.get("accept", "")):
        return EventStream(run.told, closing, run.deadline)
    result = await while_listened(run.result(), request.receive, closing)
    return Response(result.model_dump_json(), media_type=MEDIA_TYPE)


@dataclass(frozen=True, slots=True)
class RecallRun:
    """One recall, counted, limited and told to the log."""

    asked: Asking
    scope: Scope
    body: RecallRequest
    announced: LiveRecall | None = None  # who began it wants to watch it

    @property
    def deadline(self) -> float:
        """Seconds after which whoever listens is too slow."""
        return self._limits.seconds + 30.0

    @property
    def _limits(self) -> Limits:
        return (self.body.limits or RecallLimits()).limits()

    async def result(self) -> RecallResult:
        """The result of the recall."""
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, RecallResult):
                    return event
        raise AssertionError("a recall always ends in a result")

    async def told(self) -> AsyncGenerator[ServerEvent, None]:
        """The events as they are sent."""
        async with aclosing(self.events()) as events:
            async for event in events:
                if isinstance(event, RecallResult):
                    yield ServerEvent("done", event.model_dump_json().encode(), is_last=True)
                else:
                    yield ServerEvent(event.kind.value, to_json(event.as_dict()))

    async def events(self) -> AsyncGenerator[TraceEvent | RecallResult, None]:
        """The events as they happen, then the result."""
        service = self.asked.service
        live = self.announced or service.live.begin(self.scope, self._query)
        with service.live.following(live):
            async with aclosing(self._counted(live)) as events:
                async for event in events:
                    yield event

    @property
    def _query(self) -> str:
        return str(self.body.conversation()[-1]["content"])

    async def _counted(self, live: LiveRecall) -> AsyncGenerator[TraceEvent | RecallResult, None]:
        service = self.asked.service
        async with service.gate.enter(self.asked.principal.key_id):
            over = False
            try:
                async with aclosing(self._play()) as events:
                    async for event in events:
                        live.note(event)
                        over = isinstance(event, RecallResult)
                        yield self._finish(event) if isinstance(event, RecallResult) else event
            except (asyncio.CancelledError, GeneratorExit):
                if not over:  # whoever has the result need not listen to the end
                    service.metrics.count_recall(StopReason.CANCELLED.value)
                raise

    async def _play(self) -> AsyncGenerator[TraceEvent | RecallResult, None]:
        service = self.asked.service
        settings = service.library.settings
        options = RecallOptions(
            limits=self._limits,
            language=self.body.language,
            keep_traces_days=settings.trace_days,
        )
        recaller = Recaller(
            service.library, self.scope, service.model_client, options, caches=service.caches
        )
        body = self.body
        told = stream_recall(
            recaller, body.conversation(), as_of=body.as_of, time_zone=body.time_zone
        )
        async with aclosing(told) as events:
            async for event in events:
                if isinstance(event, TraceEvent):
                    for family in leaked_families(event):
                        service.metrics.count_leak(family)
                yield _without_places(event) if isinstance(event, TraceEvent) else event

    def _finish(self, result: RecallResult) -> RecallResult:
        """Count a result; one that could not read the database is a failure like any other."""
        metrics, notes = self.asked.service.metrics, self.asked.notes
        seconds = float(result.usage["seconds"])
        metrics.count_recall(result.stop_reason.value, seconds)
        metrics.count_result(result)
        notes.update(stop_reason=result.stop_reason.value, iterations=result.iterations)
        events = result.trace.events
        notes["tools"] = [event.tool for event in events if isinstance(event, CallEvent)]
        if result.stop_reason is StopReason.STORAGE_FAILED:
            raise StorageError(result.problem or "the database failed")
        return result


def _without_places(event: TraceEvent) -> TraceEvent:
    """What failed in the database is told without where the database is."""
    if isinstance(event, StopEvent) and event.reason == StopReason.STORAGE_FAILED:
        return replace(event, problem="")
    return event
