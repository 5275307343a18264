"""A chat turn as a person sees it in a terminal: calls, what they brought, text as it comes."""

import json
from collections.abc import Iterator
from typing import Any

from rich.text import Text

from memrecall.agent.tools.chat import IS_MENTIONED, OTHER_MESSAGES, RECALL_MEMORY
from memrecall.chat import ChatEvent, Failed, Final, TextDelta, ToolCall, ToolResult
from memrecall.cli.output import count, cut, flat, printable

_SHOWN = 3  # events or messages of a result
_MARGIN = "    "


class TurnDrawing:
    """Draws one turn. `text` pieces go out as they are; everything else is whole lines."""

    def __init__(self, terminal: Any, width: int, speaker: str = "") -> None:
        self._terminal = terminal
        self._width = width
        self._speaker = speaker
        self._is_speaking = False

    def draw(self, event: ChatEvent) -> None:
        """Show one event at once."""
        if isinstance(event, TextDelta):
            self._say(event.text)
            return
        self.break_off()
        for line in _lines(event):
            self._terminal.print(cut(line, self._width))

    def break_off(self) -> None:
        """End the line of what is being said, if anything is."""
        if self._is_speaking:
            self._terminal.print()
            self._is_speaking = False

    def _say(self, text: str) -> None:
        if not self._is_speaking and self._speaker:
            self._terminal.print(Text(f"{flat(self._speaker)}: ", "bold"), end="")
        self._is_speaking = True
        self._terminal.print(Text(printable(text)), end="")


def _lines(event: ChatEvent) -> Iterator[Text]:
    match event:
        case ToolCall():
            yield _call(event)
        case ToolResult():
            yield from _result(event)
        case Final():
            yield from _end(event)
        case Failed():
            yield Text(f"  failed: {flat(str(event.error))}", "red")


def _call(event: ToolCall) -> Text:
    given = _load(event.arguments)
    query = f" “{flat(str(given['query']))}”" if given.get("query") else ""
    forced = " (every turn)" if event.forged else ""
    return Text.assemble(("  ▸ ", "cyan"), (flat(event.name), "cyan"), query, (forced, "dim"))


def _result(event: ToolResult) -> Iterator[Text]:
    told = _load(event.content)
    if event.is_error:
        yield Text(f"{_MARGIN}{flat(str(told.get('note', event.content)))}", "yellow")
    elif event.name == RECALL_MEMORY and "events" in told:
        yield from _said(told, "events", "event")
    elif event.name == OTHER_MESSAGES and "messages" in told:
        yield from _said(told, "messages", "message")
    else:
        style = "bold" if event.name == IS_MENTIONED else ""
        yield Text(f"{_MARGIN}{flat(event.content)}", style)


def _said(told: dict[str, Any], field: str, thing: str) -> Iterator[Text]:
    lines = told[field]
    if not lines:
        yield Text(f"{_MARGIN}nothing found", "dim")
    for line in lines[:_SHOWN]:
        head = f"{_MARGIN}{str(line['time'])[:10]} {flat(str(line['speaker']))}: "
        yield Text.assemble((head, "dim"), flat(str(line["text"])))
    if len(lines) > _SHOWN:
        yield Text(f"{_MARGIN}and {count(len(lines) - _SHOWN, f'more {thing}')}", "dim")


def _end(event: Final) -> Iterator[Text]:
    if event.silent:
        yield Text("  says nothing", "dim")
    if event.leaks:
        forms = ", ".join(sorted({leak.family for leak in event.leaks}))
        calls = count(len(event.leaks), "call")
        yield Text(f"  the model wrote {calls} as text ({forms}): hidden, not run", "yellow")
    if event.degraded:
        yield Text("  degraded: the model gave no clean answer", "yellow")


def _load(text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}
