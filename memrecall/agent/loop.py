"""One iteration of a recall: turns over one window, bounded by the budget.

Errors of tools go back to the model, which can act on them. A model that fails twice in a row, a
store that fails twice, and every limit end the iteration with the results so far.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from dataclasses import dataclass, field
from typing import Any, Literal

from pydantic import BaseModel

from memrecall.agent.policy import RecallPolicy, RecallStep
from memrecall.agent.prompt import bound_text, call_to_resend, identify_calls, render
from memrecall.agent.result import Recorder, StopReason
from memrecall.agent.state import MAX_CONSECUTIVE_SEARCHES, RecallState, ToolRun
from memrecall.agent.tools import HANDOFF, SEARCH
from memrecall.agent.tools.models import (
    HandoffInput,
    SearchMemoriesOutput,
    ToolErrorCode,
    ToolFailure,
)
from memrecall.agent.tools.table import (
    Interface,
    error_code,
    normalize_tool_name,
    parse_arguments,
    require_tool,
    tools_for,
)
from memrecall.agent.trace import (
    CallEvent,
    ResultEvent,
    SteerEvent,
    TextEvent,
    ThoughtEvent,
    TraceEvent,
)
from memrecall.budget import Budget, Limit
from memrecall.errors import (
    MemrecallError,
    ModelFailed,
    StorageError,
)
from memrecall.model import protocol
from memrecall.model.structured import SOURCE
from memrecall.text.leaks import filter_leaks
from memrecall.timing import deadline, seconds_left

_log = logging.getLogger(__name__)

TOOL_SECONDS = 20.0
_MAX_TRACED_ITEMS = 100
_LOAD_SECONDS = 120.0  # for a local model, without a deadline
_MAX_FRUITLESS_SEARCHES = 3  # searches in a row without a new key
_MAX_BAD_CALLS = 3  # in a row
_REFUSAL_CHARACTERS = 200  # of a text that refuses, if it does so at all
_REFUSAL = re.compile(
    r".{0,40}\bi(?:['’]m| am)? (?:can['’]?t|cannot|won['’]t|not able to|unable to) (?:\w+ ){0,2}?"
    r"(?:help|assist|comply|answer|provide|discuss|share|do (?:that|this))\b"
    r"|.{0,12}(?:无法|不能|没法)(?:回答|提供|协助|帮助|满足|讨论)",
    re.IGNORECASE | re.DOTALL,
)
# What a model does instead of the task: it is corrected once, then the recall ends.
Deviation = Literal[
    "text_answer", "leaked_call", "silence", "repeated_search", "bad_calls", "refusal",
    "truncated_answer",
]  # fmt: skip
# Answers of a model that may not be able to call tools at all.
_NO_TOOLS: frozenset[Deviation] = frozenset({"text_answer", "silence"})
# Failures that say nothing about what is stored; other codes only refuse one call.
_FAILURE_CODES = frozenset({ToolErrorCode.STORAGE, ToolErrorCode.TIMEOUT, ToolErrorCode.INTERNAL})
# Codes whose phrase, of the same name, says what to do next.
_EXPLAINED_CODES = frozenset(
    {ToolErrorCode.NO_PERMISSION, ToolErrorCode.EMBEDDER, ToolErrorCode.STORAGE}
)


@dataclass(frozen=True, slots=True)
class Finish:
    """The agent handed off; `forced_by` names the limit that left it no other choice."""

    handoff: HandoffInput
    forced_by: StopReason | None = None


@dataclass(frozen=True, slots=True)
class Widen:
    """The agent asked for a larger window and got it."""

    size: int


@dataclass(frozen=True, slots=True)
class Proceed:
    """Tools were called and the agent continues."""


@dataclass(frozen=True, slots=True)
class Steer:
    """The agent has to be corrected; the second time, the reason ends the recall."""

    reason: Deviation
    phrase: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The recall cannot continue; the code writes the handoff, or goes on offline."""

    reason: StopReason
    problem: str = ""


TurnOutcome = Finish | Widen | Proceed | Steer | Stop
IterationOutcome = Finish | Widen | Stop


@dataclass(slots=True)
class LoopContext:
    """What the iterations of one recall share."""

    state: RecallState
    policy: RecallPolicy
    budget: Budget
    recorder: Recorder
    tool_seconds: float = TOOL_SECONDS
    steered: set[Deviation] = field(default_factory=set)
    has_called_tool: bool = False

    def describe_lack(self) -> str:
        """Return what the model has not done at all, "" after a successful search."""
        if self.state.searches:
            return ""
        lack = "model_no_search" if self.has_called_tool else "model_no_call"
        return self.state.say(lack, model=self.policy.name)


class RecallLoop:
    """The turns of one iteration."""

    def __init__(self, context: LoopContext) -> None:
        self._context = context
        self._state = context.state
        self._call_ids: set[str] = set()
        self._fruitless_searches = 0
        self._storage_failures = 0
        self._bad_calls = 0

    async def run(self) -> IterationOutcome:
        """Take turns until the agent hands off, gets a larger window, or cannot continue."""
        while (limit := self._context.budget.exceeded()) is None:
            match await self._take_turn():
                case Finish() | Widen() | Stop() as end:
                    return end
                case Steer(reason, _) if reason in self._context.steered:
                    return self._stop_after_steering(reason)
                case Steer(reason, phrase):
                    self._context.steered.add(reason)
                    text = self._state.say(phrase)
                    self._state.turns.append(protocol.UserMessage(content=text, source=SOURCE))
                    self._context.recorder.add(SteerEvent(reason=reason, text=text))
                case Proceed():
                    continue
        return self._stop_at(limit)

    def _stop_at(self, limit: Limit) -> Stop:
        context = self._context
        problem = context.describe_lack() if context.recorder.turn else ""
        return Stop(StopReason(limit), problem)

    async def _take_turn(self) -> TurnOutcome:
        context = self._context
        context.recorder.turn += 1
        last = context.budget.last_call()
        self._state.read_runs = len(self._state.runs)
        try:
            step = await context.policy.decide(last)
        except ModelFailed as error:
            if error.kind == "no_tools":
                return Stop(StopReason.NO_TOOL_SUPPORT, f"{context.policy.name}: {error}")
            if context.policy.can_retry(error):
                return Proceed()
            return Stop(StopReason.MODEL_FAILED, str(error))
        except TimeoutError:
            if context.has_called_tool:
                return self._stop_at(Limit.SECONDS)
            # A model that has not answered even once has failed.
            seconds = context.budget.limits.seconds
            return Stop(StopReason.MODEL_FAILED, self._describe("model_slow", seconds=seconds))
        if step.thought:
            context.recorder.add(ThoughtEvent(text=step.thought))
        if step.calls:
            outcome = await self._run_calls(step, last)
            self._refuse_rest(step)
            return outcome
        if step.is_refusal:
            context.recorder.add(TextEvent(text=step.text))
            return Stop(StopReason.REFUSAL, self._describe("model_refused"))
        return self._stop_at(last) if last else self._judge_text(step.text, step.is_truncated)

    def _judge_text(self, text: str, is_truncated: bool) -> Steer:
        if text.strip():
            self._context.recorder.add(TextEvent(text=text))
            self._state.turns.append(protocol.AssistantMessage(content=text, source=SOURCE))
        if is_truncated:
            return Steer("truncated_answer", "steer_truncated")
        if not text.strip():
            return Steer("silence", "steer_silence")
        if has_leaked_call(text, self._context.policy.name):
            return Steer("leaked_call", "steer_leak")
        is_refusal = _REFUSAL.match(text[:_REFUSAL_CHARACTERS])
        return Steer("refusal" if is_refusal else "text_answer", "steer_text")

    def _stop_after_steering(self, deviation: Deviation) -> Stop:
        """Return a stop that tells a model without tool support from one that gave up."""
        reason = StopReason(deviation)
        if deviation == "refusal":
            return Stop(reason, self._describe("model_refused"))
        if self._context.has_called_tool:
            return Stop(reason, self._describe("model_off_task", reason=deviation))
        problem = self._describe("model_no_call_because", reason=deviation)
        return Stop(StopReason.NO_TOOL_SUPPORT if deviation in _NO_TOOLS else reason, problem)

    def _describe(self, problem: str, **values: object) -> str:
        """Return a problem with the model in the language of the recall."""
        return self._state.say(problem, model=self._context.policy.name, **values)

    async def _run_calls(self, step: RecallStep, last: Limit | None) -> TurnOutcome:
        """Run calls in order; a handoff, a larger window or a limit ends the turn."""
        self._context.has_called_tool = True
        kept_calls: list[protocol.FunctionCall] = []
        results: list[protocol.FunctionExecutionResult] = []
        outcome: TurnOutcome = Proceed()
        for call in identify_calls(step.calls, self._call_ids):
            tool = normalize_tool_name(call.name)
            kept_calls.append(call_to_resend(call, tool))
            has_ended = isinstance(outcome, Finish | Widen | Stop)
            limit = None
            if not has_ended:  # one call is kept for the handoff
                is_handoff = tool == HANDOFF or last is not None
                limit = self._context.budget.tool_limit(reserve=0 if is_handoff else 1)
            if has_ended or limit is not None:
                results.append(self._skip_call(kept_calls[-1], limit))
                continue
            run = await self._run_call(call, last)
            self._state.runs.append(run)
            results.append(_make_result(kept_calls[-1], run.text, is_error=run.error is not None))
            verdict = self._judge_call(run, last, step.is_truncated)
            outcome = outcome if isinstance(verdict, Proceed) else verdict
        self._state.turns += [
            protocol.AssistantMessage(content=kept_calls, thought=step.thought, source=SOURCE),
            protocol.FunctionExecutionResultMessage(content=results),
        ]
        if last is not None and not isinstance(outcome, Finish):
            return self._stop_at(last)
        return outcome

    async def _run_call(self, call: protocol.FunctionCall, last: Limit | None) -> ToolRun:
        context = self._context
        context.budget.spend_tool_call()
        budget = context.budget
        is_last = last or budget.exceeded() or budget.tool_limit()
        self._state.can_correct = is_last is None and not self._state.is_offline
        arguments = bound_text(call.arguments)
        context.recorder.add(CallEvent(id=call.id, tool=call.name, arguments=arguments))
        seconds = min(context.tool_seconds, context.budget.seconds_left)
        run = await run_tool(self._state, call, seconds)
        context.budget.spend_tool_time(run.seconds)
        context.recorder.add(
            ResultEvent(
                id=call.id,
                tool=run.tool,
                arguments=run.arguments,
                output=run.output.model_dump(mode="json", exclude_defaults=True),
                text=run.text,
                error=run.error,
                seconds=round(run.seconds, 4),
            )
        )
        return run

    def _skip_call(
        self, call: protocol.FunctionCall, limit: Limit | None
    ) -> protocol.FunctionExecutionResult:
        text = self._state.say("not_run")
        if limit is not None:
            text = self._state.say("not_run_limit", limit=self._state.say_codes(limit))
        self._context.recorder.add(
            ResultEvent(
                id=call.id, tool=call.name, output={}, text=text, error=ToolErrorCode.NOT_RUN
            )
        )
        return _make_result(call, text, is_error=True)

    def _refuse_rest(self, step: RecallStep) -> None:
        """Tell the model, the trace and the result of calls that are too many even to answer."""
        if not step.dropped:
            return
        total, dropped = len(step.calls) + step.dropped, step.dropped
        text = self._state.say("calls_dropped", total=total, count=dropped)
        self._state.turns.append(protocol.UserMessage(content=text, source=SOURCE))
        self._context.recorder.add(SteerEvent(reason=ToolErrorCode.NOT_RUN.value, text=text))
        self._state.problem = self._describe("model_many_calls", total=total, dropped=dropped)

    def _judge_call(self, run: ToolRun, last: Limit | None, is_truncated: bool) -> TurnOutcome:
        state, window = self._state, self._state.window
        if state.handoff is not None:
            return Finish(state.handoff, StopReason(last) if last else None)
        if state.blind_handoffs > 1:
            return Stop(StopReason.OFF_TASK, self._describe("model_unread"))
        if window.granted is not None:
            return Widen(window.granted)
        if window.refusals > 1:
            is_used_up = window.iteration >= window.max_iterations
            reason = StopReason.ITERATIONS if is_used_up else StopReason.OFF_TASK
            return Stop(reason, f"{self._context.policy.name} insisted on a larger window")
        self._storage_failures = (
            self._storage_failures + 1 if run.error is ToolErrorCode.STORAGE else 0
        )
        if self._storage_failures > 1:
            return Stop(StopReason.STORAGE_FAILED)
        is_bad = run.error in (ToolErrorCode.INVALID_ARGUMENTS, ToolErrorCode.UNKNOWN_TOOL)
        if is_bad and is_truncated:
            return Steer("truncated_answer", "steer_truncated")
        self._bad_calls = self._bad_calls + 1 if is_bad else 0
        if self._bad_calls >= _MAX_BAD_CALLS:
            return Steer("bad_calls", "steer_bad_calls")
        if isinstance(run.output, SearchMemoriesOutput):
            return self._judge_search(run.output)
        return Proceed()

    def _judge_search(self, output: SearchMemoriesOutput) -> TurnOutcome:
        """Steer after a repeated search, one after a refusal, or several without new keys."""
        if output.success:
            new_keys = self._state.searches[-1].new_keys
            self._fruitless_searches = 0 if new_keys else self._fruitless_searches + 1
        ignores_refusal = self._state.consecutive_searches > MAX_CONSECUTIVE_SEARCHES + 1
        is_fruitless = self._fruitless_searches >= _MAX_FRUITLESS_SEARCHES
        if output.error is ToolErrorCode.REPEATED or ignores_refusal or is_fruitless:
            return Steer("repeated_search", "steer_repeat")
        return Proceed()


def _make_result(
    call: protocol.FunctionCall, text: str, *, is_error: bool
) -> protocol.FunctionExecutionResult:
    return protocol.FunctionExecutionResult(
        content=text, name=call.name, call_id=call.id, is_error=is_error
    )


async def run_tool(
    state: RecallState, call: protocol.FunctionCall, seconds: float = TOOL_SECONDS
) -> ToolRun:
    """Run a call; nothing but a cancellation escapes."""
    name = normalize_tool_name(call.name)
    started = time.monotonic()
    state.calls += 1
    fields: dict[str, Any] = {}
    output: BaseModel
    try:
        tool = require_tool(name, Interface.RECALL, state.language)
        arguments = parse_arguments(tool, call.arguments, lenient=True, language=state.language)
        fields = {
            # A model can list more items than a trace should hold.
            name: value[:_MAX_TRACED_ITEMS] if isinstance(value, list) else value
            for name, value in arguments.model_dump(mode="json", exclude_none=True).items()
        }
        if name == SEARCH:
            async with asyncio.timeout(seconds_left(_LOAD_SECONDS)):
                await state.library.engine.load_embedder()  # once a process, not part of a search
        else:
            state.consecutive_searches = 0
        with deadline(seconds):
            async with asyncio.timeout(seconds):
                try:
                    output = await tool.run(state, arguments)
                except StorageError:  # the database gets a second try
                    output = await tool.run(state, arguments)
    except (MemrecallError, TimeoutError) as error:
        output = _failure(state, name, error, seconds)
    except Exception as error:  # a bug in memrecall must not end the parent's run
        _log.exception("the tool %s failed", name)
        problem = type(error).__name__
        output = ToolFailure(
            error=ToolErrorCode.INTERNAL, message=state.say("internal", tool=name, problem=problem)
        )
    if isinstance(output, ToolFailure) and output.error in _FAILURE_CODES:
        state.failures.append(output.error)
    return ToolRun(name, fields, output, render(output, state.language), time.monotonic() - started)


def _failure(
    state: RecallState, tool: str, error: MemrecallError | TimeoutError, seconds: float
) -> ToolFailure:
    code = error_code(error)
    if isinstance(error, TimeoutError):
        message = state.say("timeout", tool=tool, seconds=seconds)
    elif code in _EXPLAINED_CODES:
        message = state.say(code, problem=error.message)
    else:
        message = str(error)
    return ToolFailure(error=code, message=message)


def has_leaked_call(text: str, model: str) -> bool:
    """Return True, and log it, if a model wrote a tool call as text.

    Such a call is never run: the text may quote a message or a memory.
    """
    leaks = filter_leaks(text, tools_for(Interface.RECALL), reasoning="strip").leaks
    for leak in leaks:
        name = leak.name if leak.name in tools_for(Interface.RECALL) else "a tool"
        _log.error("%s wrote a call of %s as text (%s); it was not run", model, name, leak.family)
    return bool(leaks)


def leaked_families(event: TraceEvent) -> list[str]:
    """Return the model families of the tool calls that an event contains as text."""
    if not isinstance(event, TextEvent):
        return []
    leaks = filter_leaks(event.text, tools_for(Interface.RECALL), reasoning="strip").leaks
    return [leak.family for leak in leaks]
