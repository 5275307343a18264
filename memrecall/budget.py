"""Limits of a recall and its usage so far; one budget covers all iterations."""

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from enum import StrEnum

from memrecall.errors import InvalidArgument

_OFFLINE_STEPS = 8  # that the offline policy needs to search and hand off


class Limit(StrEnum):
    """The limits of a recall, by the names that stop reasons use."""

    ITERATIONS = "iterations"
    MODEL_CALLS = "model_calls"
    TOOL_CALLS = "tool_calls"
    TOKENS = "tokens"
    SECONDS = "seconds"


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one recall; 0 forbids, it does not mean "default"."""

    iterations: int = 3
    model_calls: int = 12
    tool_calls: int = 24
    tokens: int = 60_000
    seconds: float = 60.0

    def __post_init__(self) -> None:
        for limit in Limit:
            least = 1 if limit is Limit.ITERATIONS else 0
            if not getattr(self, limit) >= least:
                raise InvalidArgument(
                    f"the limit on {limit} is {getattr(self, limit)}", hint=f"Use {least} or more"
                )


@dataclass(slots=True)
class Usage:
    """The resources that a recall has used."""

    model_calls: int = 0
    steps: int = 0  # that the offline policy decided
    tool_calls: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    estimated_tokens: int = 0  # part of the two above, for servers that report no usage
    prompt_characters: int = 0
    seconds: float = 0.0
    model_seconds: float = 0.0
    tool_seconds: float = 0.0

    @property
    def tokens(self) -> int:
        """Prompt and completion tokens, as the model counts them."""
        return self.prompt_tokens + self.completion_tokens

    def as_dict(self) -> dict[str, int | float]:
        """Return the figures by name, times in milliseconds precision."""
        return {
            name: round(value, 3) if isinstance(value, float) else value
            for name, value in asdict(self).items()
        }


class Budget:
    """The limits of a recall and the usage counted against them."""

    def __init__(self, limits: Limits, clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        self._clock = clock
        self._started = clock()
        self._used = Usage()
        self._largest_call = 0  # tokens of the most expensive call so far
        self._slowest_call = 0.0

    @property
    def usage(self) -> Usage:
        """The usage until now."""
        self._used.seconds = self._clock() - self._started
        return self._used

    @property
    def seconds_left(self) -> float:
        """The time until the limit, never below 0."""
        return max(self.limits.seconds - (self._clock() - self._started), 0.0)

    def spend_model_call(
        self,
        characters: int,
        prompt_tokens: int,
        completion_tokens: int,
        seconds: float,
        estimated_tokens: int = 0,
    ) -> None:
        """Count one model call, failed or not."""
        self._used.estimated_tokens += estimated_tokens
        self._used.model_calls += 1
        self._used.prompt_characters += characters
        self._used.prompt_tokens += prompt_tokens
        self._used.completion_tokens += completion_tokens
        self._used.model_seconds += seconds
        self._largest_call = max(self._largest_call, prompt_tokens + completion_tokens)
        self._slowest_call = max(self._slowest_call, seconds)

    def spend_step(self, seconds: float) -> None:
        """Count one step of the offline policy, which the limit on model calls bounds too."""
        self._used.steps += 1
        self._slowest_call = max(self._slowest_call, seconds)

    def spend_tool_call(self) -> None:
        """Count one tool call."""
        self._used.tool_calls += 1

    def spend_tool_time(self, seconds: float) -> None:
        """Add the time of a tool call."""
        self._used.tool_seconds += seconds

    def allow_offline(self) -> None:
        """Let the offline policy continue with what is left, and at least the few steps it needs.

        Its steps cost no tokens. A limit on tool calls below that number stays as it is.
        """
        used, limits = self._used, self.limits
        self.limits = replace(
            limits,
            model_calls=max(limits.model_calls, used.model_calls + _OFFLINE_STEPS),
            tool_calls=max(
                limits.tool_calls, used.tool_calls + min(limits.tool_calls, _OFFLINE_STEPS)
            ),
            tokens=max(limits.tokens, used.tokens + 1),
        )
        self._largest_call = 0
        self._slowest_call = 0.0

    def exceeded(self) -> Limit | None:
        """Return the limit that does not allow another model call, if any."""
        return self._limit_below(1)

    def last_call(self) -> Limit | None:
        """Return the limit that allows one more model call only, if any."""
        return self._limit_below(2)

    def tool_limit(self, *, reserve: int = 0) -> Limit | None:
        """Return the limit that does not allow a tool call and `reserve` more after it, if any."""
        if self._used.tool_calls + 1 + reserve > self.limits.tool_calls:
            return Limit.TOOL_CALLS
        return None if self.seconds_left else Limit.SECONDS

    def _limit_below(self, calls: int) -> Limit | None:
        # A later call is assumed to cost as much as the most expensive one so far.
        spare = calls - 1
        used = self._used
        if used.model_calls + used.steps + calls > self.limits.model_calls:
            return Limit.MODEL_CALLS
        if used.tool_calls + calls > self.limits.tool_calls:
            return Limit.TOOL_CALLS
        if used.tokens + spare * self._largest_call >= self.limits.tokens:
            return Limit.TOKENS
        if self.seconds_left <= spare * self._slowest_call:
            return Limit.SECONDS
        return None
