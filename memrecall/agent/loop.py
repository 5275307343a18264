"""One iteration of a recall: turns over one window, bounded by the budget.

Errors of tools go back to the model, which can act on them. A model that fails twice in a row, a
store that fails twice, and every limit end the iteration with the results so far.
"""

from dataclasses import dataclass, field

from memrecall.agent.budgeted_model import BudgetedModel
from memrecall.agent.dispatch import TOOL_SECONDS, ToolRun, has_leaked_call, run_tool
from memrecall.agent.prompt_view import SOURCE, write_hint
from memrecall.agent.result import StopReason
from memrecall.agent.state import MAX_CONSECUTIVE_SEARCHES, RecallState
from memrecall.agent.tools.definition import Interface
from memrecall.agent.tools.models import HandoffInput, SearchMemoriesOutput, ToolErrorCode
from memrecall.agent.tools.names import EXPANSION, SEARCH
from memrecall.agent.tools.table import (
    count_schema_characters,
    forced_handoff,
    function_schemas,
    tools_for,
)
from memrecall.agent.trace import Recorder
from memrecall.agent.trace_events import CallEvent, ResultEvent, SteerEvent, TextEvent, ThoughtEvent
from memrecall.budget import Budget, Limit
from memrecall.errors import ModelFailed
from memrecall.model.prompts import load_prompt
from memrecall.model.protocol import (
    AssistantMessage,
    CreateResult,
    FunctionCall,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

LARGEST_PROMPT = 100_000  # characters; longer prompts are shortened before the model refuses
_MAX_FRUITLESS_SEARCHES = 3  # searches in a row without a new key
_MAX_BAD_CALLS = 3  # in a row
_ANSWERS_WITHOUT_CALLS = frozenset(
    {StopReason.TEXT_ANSWER, StopReason.LEAKED_CALL, StopReason.SILENCE}
)
_PERMANENT_FAILURES = frozenset({"authentication", "quota", "refused"})
_TRUNCATED_RESULT = 200  # characters


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

    reason: StopReason
    phrase: str


@dataclass(frozen=True, slots=True)
class Stop:
    """The recall cannot continue; the code writes the handoff, or the rules take over."""

    reason: StopReason
    problem: str = ""
    never_called: bool = False  # the model has called no tool at all


TurnOutcome = Finish | Widen | Proceed | Steer | Stop
IterationOutcome = Finish | Widen | Stop


@dataclass(slots=True)
class LoopContext:
    """What the iterations of one recall share."""

    state: RecallState
    model: BudgetedModel
    tool_seconds: float = TOOL_SECONDS
    largest_prompt: int = LARGEST_PROMPT
    steered: set[StopReason] = field(default_factory=set)
    model_failures: int = 0  # in a row
    has_called_tool: bool = False

    @property
    def budget(self) -> Budget:
        """The budget of the recall."""
        return self.model.budget

    @property
    def recorder(self) -> Recorder:
        """The recorder of the trace."""
        return self.model.recorder


class RecallLoop:
    """The turns of one iteration."""

    def __init__(self, context: LoopContext, briefing: str) -> None:
        self._context = context
        self._state = context.state
        language = context.state.language
        self._history: list[LLMMessage] = [
            SystemMessage(content=load_prompt("recall", language)),
            UserMessage(content=briefing, source=SOURCE),
        ]
        self._characters = count_schema_characters(language)
        self._characters += sum(len(str(message.content)) for message in self._history)
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
                    self._steer(reason, phrase)
                case Proceed():
                    continue
        return Stop(StopReason(limit))

    async def _take_turn(self) -> TurnOutcome:
        context = self._context
        context.recorder.turn += 1
        last = context.budget.last_call()
        try:
            reply = await self._call_model(last)
        except ModelFailed as error:
            return self._judge_failure(error)
        except TimeoutError:
            return self._judge_timeout()
        context.model_failures = 0
        if reply.thought:
            context.recorder.add(ThoughtEvent(text=reply.thought))
        if isinstance(reply.content, str):
            return Stop(StopReason(last)) if last else self._judge_text(reply.content)
        return await self._run_calls(reply.content, reply.thought, last)

    async def _call_model(self, last: Limit | None) -> CreateResult:
        """Call the model; its last call can only be a handoff."""
        language = self._state.language
        hint = write_hint(language, self._context.budget, self._usable_tools(), last=last)
        self._shrink(self._context.largest_prompt)
        return await self._context.model.call(
            [*self._history, UserMessage(content=hint, source=SOURCE)],
            characters=self._characters + len(hint),
            purpose="recall",
            tools=function_schemas(Interface.RECALL, language),
            tool_choice=forced_handoff(language) if last else "required",
        )

    def _usable_tools(self) -> list[str]:
        """Return the names of the tools that would not be refused now."""
        state = self._state
        refused = set() if state.window.can_grow else {EXPANSION}
        if state.consecutive_searches >= MAX_CONSECUTIVE_SEARCHES:
            refused.add(SEARCH)
        return [name for name in tools_for(Interface.RECALL) if name not in refused]

    def _judge_failure(self, error: ModelFailed) -> TurnOutcome:
        context = self._context
        context.model_failures += 1
        if error.kind == "no_tools":
            return Stop(StopReason.NO_TOOL_SUPPORT, f"{context.model.name}: {error}")
        is_final = context.model_failures > 1 or error.kind in _PERMANENT_FAILURES
        if is_final or (error.kind == "overflow" and not self._shrink(self._characters // 2)):
            return Stop(StopReason.MODEL_FAILED, str(error))
        return Proceed()

    def _judge_timeout(self) -> Stop:
        """Return the limit, or a model failure if the model has not answered even once."""
        if self._context.has_called_tool:
            return Stop(StopReason.SECONDS)
        seconds = self._context.budget.limits.seconds
        problem = f"{self._context.model.name} did not answer within {seconds:g} s"
        return Stop(StopReason.MODEL_FAILED, problem)

    def _judge_text(self, text: str) -> Steer:
        if not text.strip():
            return Steer(StopReason.SILENCE, "steer_silence")
        self._context.recorder.add(TextEvent(text=text))
        self._append(AssistantMessage(content=text, source=SOURCE), len(text))
        if has_leaked_call(text, self._context.model.name):
            return Steer(StopReason.LEAKED_CALL, "steer_leak")
        return Steer(StopReason.TEXT_ANSWER, "steer_text")

    def _steer(self, reason: StopReason, phrase: str) -> None:
        self._context.steered.add(reason)
        text = self._state.say(phrase)
        self._append(UserMessage(content=text, source=SOURCE), len(text))
        self._context.recorder.add(SteerEvent(reason=reason.value, text=text))

    def _stop_after_steering(self, reason: StopReason) -> Stop:
        """Return a stop that tells a model without tool support from one that gave up.

        A model that writes its calls as text keeps that reason, because it says what to fix.
        """
        if reason not in _ANSWERS_WITHOUT_CALLS or self._context.has_called_tool:
            return Stop(reason)
        problem = f"{self._context.model.name} never called a tool ({reason.value})"
        if reason is not StopReason.LEAKED_CALL:
            reason = StopReason.NO_TOOL_SUPPORT
        return Stop(reason, problem, never_called=True)

    async def _run_calls(
        self, calls: list[FunctionCall], thought: str | None, last: Limit | None
    ) -> TurnOutcome:
        """Run calls in order; a handoff or a larger window ends the turn."""
        self._context.has_called_tool = True
        results: list[FunctionExecutionResult] = []
        outcome: TurnOutcome = Proceed()
        for call in calls:
            if isinstance(outcome, Finish | Widen | Stop):
                results.append(self._skip_call(call))
                continue
            run = await self._run_call(call)
            results.append(_make_result(call, run.text, is_error=run.error is not None))
            verdict = self._judge_call(run, last)
            outcome = outcome if isinstance(verdict, Proceed) else verdict
        size = sum(len(call.arguments) + len(call.name) for call in calls)
        self._append(AssistantMessage(content=calls, thought=thought, source=SOURCE), size)
        size = sum(len(result.content) for result in results)
        self._append(FunctionExecutionResultMessage(content=results), size)
        if last is not None and not isinstance(outcome, Finish):
            return Stop(StopReason(last))
        return outcome

    async def _run_call(self, call: FunctionCall) -> ToolRun:
        context = self._context
        context.budget.spend_tool_call()
        context.recorder.add(CallEvent(id=call.id, tool=call.name, arguments=call.arguments))
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

    def _skip_call(self, call: FunctionCall) -> FunctionExecutionResult:
        text = self._state.say("not_run")
        self._context.recorder.add(
            ResultEvent(
                id=call.id, tool=call.name, output={}, text=text, error=ToolErrorCode.NOT_RUN
            )
        )
        return _make_result(call, text, is_error=True)

    def _judge_call(self, run: ToolRun, last: Limit | None) -> TurnOutcome:
        state, window = self._state, self._state.window
        if state.handoff is not None:
            return Finish(state.handoff, StopReason(last) if last else None)
        if window.granted is not None:
            return Widen(window.granted)
        if window.refusals > 1:
            is_used_up = window.iteration >= window.max_iterations
            return Stop(StopReason.ITERATIONS if is_used_up else StopReason.NO_OLDER_MESSAGES)
        self._storage_failures = (
            self._storage_failures + 1 if run.error is ToolErrorCode.STORAGE else 0
        )
        if self._storage_failures > 1:
            return Stop(StopReason.STORAGE_FAILED)
        is_bad = run.error in (ToolErrorCode.INVALID_ARGUMENTS, ToolErrorCode.UNKNOWN_TOOL)
        self._bad_calls = self._bad_calls + 1 if is_bad else 0
        if self._bad_calls >= _MAX_BAD_CALLS:
            return Steer(StopReason.BAD_CALLS, "steer_bad_calls")
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
            return Steer(StopReason.REPEATED_SEARCH, "steer_repeat")
        return Proceed()

    def _append(self, message: LLMMessage, size: int) -> None:
        self._history.append(message)
        self._characters += size

    def _shrink(self, largest: int) -> bool:
        """Truncate the results of earlier turns, oldest first, until the prompt fits."""
        before = self._characters
        for index, message in enumerate(self._history[:-1]):
            if self._characters <= largest:
                break
            if isinstance(message, FunctionExecutionResultMessage):
                shorter = [_truncate(result) for result in message.content]
                self._characters -= sum(len(result.content) for result in message.content)
                self._characters += sum(len(result.content) for result in shorter)
                self._history[index] = FunctionExecutionResultMessage(content=shorter)
        return self._characters < before


def _make_result(call: FunctionCall, text: str, *, is_error: bool) -> FunctionExecutionResult:
    return FunctionExecutionResult(content=text, name=call.name, call_id=call.id, is_error=is_error)


def _truncate(result: FunctionExecutionResult) -> FunctionExecutionResult:
    return result.model_copy(update={"content": result.content[:_TRUNCATED_RESULT]})
