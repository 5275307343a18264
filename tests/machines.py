"""State machines of Hypothesis whose rules run coroutines, and how tests run them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any, ClassVar, TypeVar

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test

from memrecall.errors import MemrecallError

Result = TypeVar("Result")
Expected = type[MemrecallError] | None

LONG = pytest.mark.parametrize("is_long", [False, pytest.param(True, marks=pytest.mark.long)])


class AsyncMachine(RuleBasedStateMachine):
    """A state machine with an event loop; a subclass says what `_close` closes."""

    counts: ClassVar[Counter[str]] = Counter()  # of the operations of a run

    def __init__(self) -> None:
        super().__init__()
        self._runner = asyncio.Runner()

    def _run(self, work: Coroutine[Any, Any, Result]) -> Result:
        return self._runner.run(work)

    def _attempt(self, work: Coroutine[Any, Any, Any], expected: Expected) -> Any:
        """Run an operation that fails as the model says; return its result, or None."""
        self.counts["allowed" if expected is None else "refused"] += 1
        if expected is None:
            return self._run(work)
        with pytest.raises(expected) as error:
            self._run(work)
        assert type(error.value) is expected
        return None

    def _succeeds(self, work: Coroutine[Any, Any, Any], expected: Expected) -> bool:
        """Run an operation that fails as the model says; return True if it does not fail."""
        self._attempt(work, expected)
        return expected is None

    async def _close(self) -> None: ...

    def teardown(self) -> None:
        self._run(self._close())
        self._runner.close()


def run_machine(
    make: Callable[[], AsyncMachine], examples: int, steps: int, *, derandomize: bool = False
) -> Counter[str]:
    """Run a machine and count its operations; `derandomize` makes all runs the same."""
    AsyncMachine.counts.clear()
    options = settings(
        max_examples=examples,
        stateful_step_count=steps,
        deadline=None,
        database=None,
        derandomize=derandomize,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(make, settings=options)  # type: ignore[arg-type]  # any callable
    return AsyncMachine.counts
