"""Functions of the application that run over messages: on every add, or when they are asked for.

One that fails or takes too long is reported; it never breaks a write.
"""

import asyncio
import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from memrecall.errors import InvalidArgument, NotFound

When = Literal["add", "demand"]

DEFAULT_TIMEOUT = 30.0


@dataclass(frozen=True, slots=True)
class Process:
    """A registered function. It takes a list of items in the shape of `get_all`."""

    name: str
    function: Callable[[list[dict[str, Any]]], Any]
    when: When
    timeout: float


class Processes:
    """The functions that an application has registered, by name."""

    def __init__(self) -> None:
        self._known: dict[str, Process] = {}

    def register(
        self,
        name: str,
        function: Callable[[list[dict[str, Any]]], Any],
        *,
        when: When = "demand",
        timeout: float = DEFAULT_TIMEOUT,
    ) -> None:
        """Take a function, sync or async; a name can be given once."""
        if not name or not callable(function):
            raise InvalidArgument("a process needs a name and a function")
        if when not in ("add", "demand"):
            raise InvalidArgument(f"when {when!r} is not known", hint="Use add or demand")
        if not timeout > 0:
            raise InvalidArgument(f"timeout {timeout} is not a time", hint="Give seconds")
        if name in self._known:
            raise InvalidArgument(f"a process {name!r} is registered already")
        self._known[name] = Process(name, function, when, timeout)

    def on_add(self) -> list[Process]:
        """Those that run on every add."""
        return [process for process in self._known.values() if process.when == "add"]

    def find(self, name: str) -> Process:
        """The process of that name."""
        if name not in self._known:
            known = ", ".join(sorted(self._known)) or "none"
            raise NotFound(f"there is no process {name!r}", hint=f"Registered: {known}")
        return self._known[name]


async def run_processes(
    processes: Sequence[Process], items: list[dict[str, Any]]
) -> list[dict[str, Any]]:
    """Run them one after another; each tells its result or its error."""
    return [await _run(process, items) for process in processes]


async def _run(process: Process, items: list[dict[str, Any]]) -> dict[str, Any]:
    try:
        async with asyncio.timeout(process.timeout):
            if inspect.iscoroutinefunction(process.function):
                result = await process.function(items)
            else:
                result = await asyncio.to_thread(process.function, items)
                if inspect.isawaitable(result):
                    result = await result
    except TimeoutError:
        return {"name": process.name, "ok": False, "error": f"no end after {process.timeout:g} s"}
    # The function is the application's: whatever it raises is reported, not ours to judge.
    except Exception as error:
        return {"name": process.name, "ok": False, "error": f"{type(error).__name__}: {error}"}
    return {"name": process.name, "ok": True, "result": result}
