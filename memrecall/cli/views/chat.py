"""The terminal view of a chat turn: tool calls, their results, text as it streams."""

from collections.abc import Iterator
from typing import Any

from rich.cells import cell_len
from rich.control import Control
from rich.segment import ControlType
from rich.text import Text

from memrecall.agent.tools import RECALL_MEMORY
from memrecall.chat import (
    ChatEvent,
    Failed,
    Final,
    TextDelta,
    TextRetracted,
    ToolCall,
    ToolResult,
)
from memrecall.cli.output import count_noun, cut_line, flatten, sanitize
from memrecall.json_objects import load_json_object

_MAX_ITEMS = 3  # events of a tool result
_MARGIN = "    "


class ChatTurnView:
    """Prints one turn: text as it streams, everything else as whole lines.

    Only a terminal can erase retracted text, so elsewhere a text is printed when it is complete.
    """

    def __init__(self, terminal: Any, width: int) -> None:
        self._terminal = terminal
        self._width = width
        self._earlier = ""  # the text before the tool calls so far
        self._text = ""  # the text after them
        self._can_erase = terminal.is_terminal

    def show(self, event: ChatEvent) -> None:
        """Print one event."""
        if isinstance(event, TextDelta):
            self._add(event.text)
            return
        if isinstance(event, TextRetracted):
            self._erase()
            self._add(event.text.removeprefix(self._earlier))
            return
        self.end_line()
        for line in _lines(event):
            self._terminal.print(cut_line(line, self._width))

    def end_line(self) -> None:
        """End the line of streamed text, if there is one."""
        if not self._text:
            return
        if not self._can_erase:
            self._print(self._text)
        self._terminal.print()
        self._earlier, self._text = self._earlier + self._text, ""

    def _add(self, text: str) -> None:
        if self._can_erase and text:
            self._print(text)
        self._text += text

    def _print(self, text: str) -> None:
        self._terminal.print(Text(sanitize(text)), end="", soft_wrap=True)

    def _erase(self) -> None:
        """Remove the current text from the terminal."""
        if self._can_erase and self._text:
            lines = sanitize(self._text).split("\n")
            columns = max(self._terminal.width, 1)
            rows = sum(max(-(-cell_len(line) // columns), 1) for line in lines)
            erase_line = (ControlType.ERASE_IN_LINE, 2)
            above = [(ControlType.CURSOR_UP, 1), erase_line] * (rows - 1)
            self._terminal.control(Control(ControlType.CARRIAGE_RETURN, erase_line, *above))
        self._text = ""


def _lines(event: ChatEvent) -> Iterator[Text]:
    match event:
        case ToolCall():
            yield _call(event)
        case ToolResult():
            yield from _result(event)
        case Final():
            yield from _end(event)
        case Failed():
            yield Text(f"  failed: {flatten(str(event.error))}", "red")


def _call(event: ToolCall) -> Text:
    arguments = load_json_object(event.arguments) or {}
    query = f" “{flatten(str(arguments['query']))}”" if arguments.get("query") else ""
    forced = " (every turn)" if event.forged else ""
    return Text.assemble(("  ▸ ", "cyan"), (flatten(event.name), "cyan"), query, (forced, "dim"))


def _result(event: ToolResult) -> Iterator[Text]:
    output = load_json_object(event.content) or {}
    if event.is_error:
        yield Text(f"{_MARGIN}{flatten(str(output.get('note', event.content)))}", "yellow")
    elif event.name == RECALL_MEMORY and "events" in output:
        yield from _items(output["events"])
    else:
        yield Text(f"{_MARGIN}{flatten(event.content)}")


def _items(items: list[dict[str, Any]]) -> Iterator[Text]:
    if not items:
        yield Text(f"{_MARGIN}nothing found", "dim")
    for item in items[:_MAX_ITEMS]:
        label = f" ({item['certainty']})" if "certainty" in item else ""
        head = f"{_MARGIN}{str(item['time'])[:10]} {flatten(str(item['speaker']))}{label}: "
        yield Text.assemble((head, "dim"), flatten(str(item["text"])))
    if len(items) > _MAX_ITEMS:
        yield Text(f"{_MARGIN}and {count_noun(len(items) - _MAX_ITEMS, 'more event')}", "dim")


def _end(event: Final) -> Iterator[Text]:
    if event.leaks:
        families = ", ".join(sorted({leak.family for leak in event.leaks}))
        calls = count_noun(len(event.leaks), "call")
        yield Text(f"  the model wrote {calls} as text ({families}): hidden, not run", "yellow")
    if event.is_truncated:
        yield Text(f"  truncated: the model stopped early ({event.finish_reason})", "yellow")
    if event.degraded:
        yield Text("  degraded: the model returned no clean answer", "yellow")
