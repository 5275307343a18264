"""One iteration of a recall: turns over one window, bounded by the budget.

Errors of tools go back to the model, which can act on them. A model that fails twice in a row, a
store that fails twice, and every limit end the iteration with what was found.
"""

from dataclasses import dataclass, field

from autogen_core import FunctionCall
from autogen_core.models import (
    AssistantMessage,
    CreateResult,
    FunctionExecutionResult,
    FunctionExecutionResultMessage,
    LLMMessage,
    SystemMessage,
    UserMessage,
)

from memrecall.agent.budgeted_model import BudgetedModel
from memrecall.agent.dispatch import TOOL_SECONDS, ToolRun, run_tool
from memrecall.agent.leaks import is_leaked_call
from memrecall.agent.outcome import (
    Finish,
    IterationOutcome,
    Proceed,
    Steer,
    Stop,
    StopReason,
    TurnOutcome,
    Widen,
)
from memrecall.agent.phrases import say
from memrecall.agent.prompt_view import SOURCE, write_hint
from memrecall.agent.state import SEARCHES_IN_A_ROW, RecallState
from memrecall.agent.tools.models import SearchMemoriesOutput
from memrecall.agent.tools.table import forced_handoff, schema_characters, tool_schemas
from memrecall.agent.trace import (
    CallEvent,
    Recorder,
    ResultEvent,
    SteerEvent,
    TextEvent,
    ThoughtEvent,
)
from memrecall.budget import Budget, Limit
from memrecall.errors import ModelFailed
from memrecall.model.prompts import load_prompt

LARGEST_PROMPT = 100_000  # characters; beyond, older results are cut before the model refuses
_BARREN_SEARCHES = 3  # searches without a new key, after which more of them are no use
_NO_CALLS = frozenset({StopReason.TEXT_ANSWER, StopReason.LEAKED_CALL, StopReason.SILENCE})
_BAD_CALLS = 3  # in a row, after which more of them are no use
_FINAL = frozenset({"authentication", "quota", "refused"})  # failures that a second try repeats


@dataclass(slots=True)
class LoopContext:
    """What the iterations of one recall share."""

    desk: RecallState
    model: BudgetedModel
    recorder: Recorder
    tool_seconds: float = TOOL_SECONDS
    largest_prompt: int = LARGEST_PROMPT
    steered: set[StopReason] = field(default_factory=set)
    failures: int = 0  # of the model, in a row
    called_a_tool: bool = False

    @property
    def name(self) -> str:
        """The name of the model."""
        return self.model.name

    @property
    def budget(self) -> Budget:
        """The budget that the model's calls are held against."""
        return self.model.budget


class RecallLoop:
    """The turns of one iteration."""

    def __init__(self, run: LoopContext, briefing: str) -> None:
        self._run = run
        self._desk = run.desk
        self._history: list[LLMMessage] = [
            SystemMessage(content=load_prompt("recall", run.desk.language)),
            UserMessage(content=briefing, source=SOURCE),
        ]
        self._characters = schema_characters(run.desk.language)
        self._characters += sum(len(str(message.content)) for message in self._history)
        self._barren = 0
        self._storage_failures = 0
        self._bad_calls = 0

    async def run(self) -> IterationOutcome:
        """Take turns until the agent hands off, asks for more, or cannot go on."""
        while (limit := self._run.budget.exceeded()) is None:
            match await self._take_turn():
                case Finish() | Widen() | Stop() as end:
                    return end
                case Steer(reason, _) if reason in self._run.steered:
                    return self._end_strayed(reason)
                case Steer(reason, phrase):
                    self._steer(reason, phrase)
                case Proceed():
                    continue
        return Stop(StopReason(limit))

    async def _take_turn(self) -> TurnOutcome:
        self._run.recorder.turn += 1
        last = self._run.budget.last_call()
        try:
            reply = await self._ask(last)
        except ModelFailed as error:
            return self._judge_failure(error)
        except TimeoutError:
            return self._judge_timeout()
        self._run.failures = 0
        if reply.thought:
            self._run.recorder.add(ThoughtEvent(text=reply.thought))
        if isinstance(reply.content, str):
            return Stop(StopReason(last)) if last else self._judge_text(reply.content)
        return await self._run_calls(reply.content, reply.thought, last)

    async def _ask(self, last: Limit | None) -> CreateResult:
        """Call the model; on the last call it can only hand off."""
        language = self._desk.language
        hint = write_hint(self._desk, self._run.budget, last=last)
        self._shrink(self._run.largest_prompt)
        return await self._run.model.call(
            [*self._history, UserMessage(content=hint, source=SOURCE)],
            characters=self._characters + len(hint),
            purpose="recall",
            tools=tool_schemas(language),
            tool_choice=forced_handoff(language) if last else "required",
        )

    def _judge_failure(self, error: ModelFailed) -> TurnOutcome:
        run = self._run
        run.failures += 1
        if error.kind == "no_tools":
            return Stop(StopReason.NO_TOOL_SUPPORT, f"{run.name}: {error}")
        if run.failures > 1 or error.kind in _FINAL:
            return Stop(StopReason.MODEL_FAILED, str(error))
        if error.kind == "overflow" and not self._shrink(self._characters // 2):
            return Stop(StopReason.MODEL_FAILED, str(error))
        return Proceed()

    def _judge_timeout(self) -> Stop:
        """No time is left. A model that has not answered even once has failed."""
        if self._run.called_a_tool:
            return Stop(StopReason.SECONDS)
        seconds = self._run.budget.limits.seconds
        return Stop(
            StopReason.MODEL_FAILED, f"{self._run.name} did not answer within {seconds:g} s"
        )

    def _judge_text(self, text: str) -> Steer:
        if not text.strip():
            return Steer(StopReason.SILENCE, "steer_silence")
        self._run.recorder.add(TextEvent(text=text))
        self._append(AssistantMessage(content=text, source=SOURCE), len(text))
        if is_leaked_call(text, self._run.name):
            return Steer(StopReason.LEAKED_CALL, "steer_leak")
        return Steer(StopReason.TEXT_ANSWER, "steer_text")

    def _steer(self, reason: StopReason, phrase: str) -> None:
        self._run.steered.add(reason)
        words = say(self._desk.language, phrase)
        self._append(UserMessage(content=words, source=SOURCE), len(words))
        self._run.recorder.add(SteerEvent(reason=reason.value, text=words))

    def _end_strayed(self, reason: StopReason) -> Stop:
        """A model that never called a tool cannot: that is not the same as one that stopped.

        One that writes its calls as text is named by that, which tells what to mend.
        """
        if reason not in _NO_CALLS or self._run.called_a_tool:
            return Stop(reason)
        problem = f"{self._run.name} never called a tool ({reason.value})"
        if reason is StopReason.LEAKED_CALL:
            return Stop(reason, problem, never_called=True)
        return Stop(StopReason.NO_TOOL_SUPPORT, problem, never_called=True)

    async def _run_calls(
        self, calls: list[FunctionCall], thought: str | None, last: Limit | None
    ) -> TurnOutcome:
        """Run calls in their order; a handoff or a larger window ends the turn."""
        self._run.called_a_tool = True
        results: list[FunctionExecutionResult] = []
        outcome: TurnOutcome = Proceed()
        for call in calls:
            if isinstance(outcome, Finish | Widen | Stop):
                results.append(self._skip(call))
                continue
            done = await self._run_call(call)
            failed = done.error is not None
            results.append(_result(call, done.text, failed))
            judged = self._judge_call(done, last)
            outcome = outcome if isinstance(judged, Proceed) else judged
        size = sum(len(call.arguments) + len(call.name) for call in calls)
        self._append(AssistantMessage(content=calls, thought=thought, source=SOURCE), size)
        size = sum(len(result.content) for result in results)
        self._append(FunctionExecutionResultMessage(content=results), size)
        if last is not None and not isinstance(outcome, Finish):
            return Stop(StopReason(last))
        return outcome

    async def _run_call(self, call: FunctionCall) -> ToolRun:
        run = self._run
        run.budget.spend_tool_call()
        run.recorder.add(CallEvent(id=call.id, tool=call.name, arguments=call.arguments))
        seconds = min(run.tool_seconds, run.budget.seconds_left)
        done = await run_tool(self._desk, call, seconds)
        run.budget.spend_tool_time(done.seconds)
        run.recorder.add(
            ResultEvent(
                id=call.id,
                tool=done.tool,
                arguments=done.arguments,
                output=done.output.model_dump(mode="json", exclude_defaults=True),
                text=done.text,
                error=done.error,
                seconds=round(done.seconds, 4),
            )
        )
        return done

    def _judge_call(self, done: ToolRun, last: Limit | None) -> TurnOutcome:
        desk = self._desk
        if desk.handoff is not None:
            return Finish(desk.handoff, StopReason(last) if last else None)
        if desk.window.granted is not None:
            return Widen(desk.window.granted)
        if desk.window.refusals > 1:
            used_up = desk.window.iteration >= desk.window.max_iterations
            return Stop(StopReason.ITERATIONS if used_up else StopReason.NO_OLDER_MESSAGES)
        self._storage_failures = self._storage_failures + 1 if done.error == "storage" else 0
        if self._storage_failures > 1:
            return Stop(StopReason.STORAGE_FAILED)
        bad = done.error in ("invalid_arguments", "unknown_tool")
        self._bad_calls = self._bad_calls + 1 if bad else 0
        if self._bad_calls >= _BAD_CALLS:
            return Steer(StopReason.BAD_CALLS, "steer_bad_calls")
        if isinstance(done.output, SearchMemoriesOutput):
            return self._judge_search(done.output)
        return Proceed()

    def _judge_search(self, found: SearchMemoriesOutput) -> TurnOutcome:
        """A search that repeats, comes after a refusal, or is the third that brings nothing new."""
        if found.success:
            new = self._desk.notes.searches[-1].new_keys
            self._barren = 0 if new else self._barren + 1
        insists = self._desk.notes.in_a_row > SEARCHES_IN_A_ROW + 1
        if found.error == "repeated" or insists or self._barren >= _BARREN_SEARCHES:
            return Steer(StopReason.REPEATED_SEARCH, "steer_repeat")
        return Proceed()

    def _skip(self, call: FunctionCall) -> FunctionExecutionResult:
        words = say(self._desk.language, "not_run")
        self._run.recorder.add(
            ResultEvent(id=call.id, tool=call.name, output={}, text=words, error="not_run")
        )
        return _result(call, words, True)

    def _append(self, message: LLMMessage, size: int) -> None:
        self._history.append(message)
        self._characters += size

    def _shrink(self, largest: int) -> bool:
        """Cut the results of earlier turns, the oldest first, until the prompt fits."""
        cut = False
        for at, message in enumerate(self._history[:-1]):
            if self._characters <= largest:
                break
            if isinstance(message, FunctionExecutionResultMessage):
                shorter = [_cut(result) for result in message.content]
                freed = sum(len(r.content) for r in message.content)
                freed -= sum(len(r.content) for r in shorter)
                self._history[at] = FunctionExecutionResultMessage(content=shorter)
                self._characters -= freed
                cut = cut or freed > 0
        return cut


def _result(call: FunctionCall, text: str, failed: bool) -> FunctionExecutionResult:
    return FunctionExecutionResult(content=text, name=call.name, call_id=call.id, is_error=failed)


def _cut(result: FunctionExecutionResult) -> FunctionExecutionResult:
    return result.model_copy(update={"content": result.content[:200]})
