"""The cases of fixtures/leaks: texts, their visible part and their leaks."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import cast

from memrecall.text import LeakFilter
from memrecall.text.leaks.matchers import Reasoning

FOLDER = Path(__file__).resolve().parents[2] / "fixtures" / "leaks"
TOOLS = ("search_memory", "is_mentioned")


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

    @property
    def at_start(self) -> bool:
        """True if the text is a call only at the start of an answer."""
        return self.text.startswith(
            ("```", "    ", "analysis", '{"search_memory": {', '{"name": "search_memory"}')
        )

    def filter(self) -> LeakFilter:
        return LeakFilter(TOOLS, reasoning=self.reasoning)


def read_cases(name: str) -> list[Case]:
    """Return the cases of one file."""
    lines = (FOLDER / f"{name}.jsonl").read_text("utf-8").splitlines()
    return [_case(name, number, json.loads(line)) for number, line in enumerate(lines, start=1)]


def _case(name: str, number: int, fields: dict[str, object]) -> Case:
    names = fields.get("names")
    text, visible, leak = str(fields["text"]), str(fields["visible"]), bool(fields["leak"])
    position = fields.get("position", len(visible) if text.startswith(visible) else None)
    return Case(
        source=f"{name}:{number}",
        family=str(fields["family"]),
        text=text,
        visible=visible,
        leak=leak,
        position=cast("int | None", position) if leak else None,
        names=tuple(cast("list[str | None]", names)) if names is not None else None,
        reasoning=cast("Reasoning", fields.get("reasoning", "keep")),
    )


CASES = read_cases("collected") + read_cases("written")
