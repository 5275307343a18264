"""The cases of fixtures/leaks: texts, their visible part and their leaks."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from memrecall.text import LeakFilter
from memrecall.text.leaks import Leak
from memrecall.text.leaks.catalog import LeakMode, Reasoning

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "leaks"
TOOLS = ("search_memory", "is_mentioned")
MODES: tuple[LeakMode, ...] = ("lenient", "strict")
UNLISTED_CHARACTER = "好"  # a character that no pattern lists


@dataclass(frozen=True)
class Case:
    """A text, the settings of its filter, and the expected result."""

    source: str
    family: str
    text: str
    visible: str
    leak: bool
    position: int | None
    names: tuple[str | None, ...] | None
    reasoning: Reasoning
    mode: LeakMode

    @property
    def at_start(self) -> bool:
        """True if the text is a call only at the start of an answer."""
        return self.text.startswith(
            ("```", "    ", "analysis", '{"search_memory": {', '{"name": "search_memory"}')
        )

    def filter(self) -> LeakFilter:
        return LeakFilter(TOOLS, reasoning=self.reasoning, mode=self.mode)


def read_cases(name: str) -> list[Case]:
    """Return the cases of one file, each in its mode or in both."""
    lines = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    numbered = [(number, json.loads(line)) for number, line in enumerate(lines, start=1)]
    return [
        _case(name, number, fields, mode)
        for number, fields in numbered
        for mode in ([fields["mode"]] if "mode" in fields else MODES)
    ]


def _case(name: str, number: int, fields: dict[str, object], mode: LeakMode) -> Case:
    names = fields.get("names")
    text, visible, leak = str(fields["text"]), str(fields["visible"]), bool(fields["leak"])
    position = fields.get("position", len(visible) if text.startswith(visible) else None)
    return Case(
        source=f"{name}:{number}:{mode}",
        family=str(fields["family"]),
        text=text,
        visible=visible,
        leak=leak,
        position=cast("int | None", position) if leak else None,
        names=tuple(cast("list[str | None]", names)) if names is not None else None,
        reasoning=cast("Reasoning", fields.get("reasoning", "keep")),
        mode=mode,
    )


def stream(leaks: LeakFilter, chunks: Iterable[str]) -> tuple[str, list[Leak]]:
    """Return what a reader sees of the chunks in the end, and the leaks."""
    visible, had_retracted = "", False
    for chunk in (*chunks, None):
        piece = leaks.close() if chunk is None else leaks.feed(chunk)
        if leaks.has_retracted and not had_retracted:
            visible, had_retracted = "", True
        visible += piece
    return visible, leaks.leaks


CASES = read_cases("collected") + read_cases("written")
