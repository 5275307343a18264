"""The terminal view of a chat turn: tool calls, their results, text as it streams."""

from collections.abc import Iterator
from typing import Any

from rich.text import Text

from memrecall.agent.tools.names import IS_MENTIONED, OTHER_MESSAGES, RECALL_MEMORY
from memrecall.chat import ChatEvent, Failed, Final, TextDelta, ToolCall, ToolResult
from memrecall.cli.output import count_noun, flatten, sanitize, truncate
from memrecall.json_objects import load_json_object

_MAX_ITEMS = 3  # events or messages of a tool result
_MARGIN = "    "


class ChatTurnView:
    """Prints one turn: text as it streams, everything else as whole lines."""

    def __init__(self, terminal: Any, width: int, speaker: str = "") -> None:
        self._terminal = terminal
        self._width = width
        self._speaker = speaker
        self._is_streaming = False

    def show(self, event: ChatEvent) -> None:
        """Print one event."""
        if isinstance(event, TextDelta):
            self._print_text(event.text)
            return
        self.end_line()
        for line in _lines(event):
            self._terminal.print(truncate(line, self._width))

    def end_line(self) -> None:
        """End the line of streamed text, if there is one."""
        if self._is_streaming:
            self._terminal.print()
            self._is_streaming = False

    def _print_text(self, text: str) -> None:
        if not self._is_streaming and self._speaker:
            self._terminal.print(Text(f"{flatten(self._speaker)}: ", "bold"), end="")
        self._is_streaming = True
        self._terminal.print(Text(sanitize(text)), end="")


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
        yield from _items(output, "events", "event")
    elif event.name == OTHER_MESSAGES and "messages" in output:
        yield from _items(output, "messages", "message")
    else:
        style = "bold" if event.name == IS_MENTIONED else ""
        yield Text(f"{_MARGIN}{flatten(event.content)}", style)


def _items(output: dict[str, Any], field: str, noun: str) -> Iterator[Text]:
    items = output[field]
    if not items:
        yield Text(f"{_MARGIN}nothing found", "dim")
    for item in items[:_MAX_ITEMS]:
        head = f"{_MARGIN}{str(item['time'])[:10]} {flatten(str(item['speaker']))}: "
        yield Text.assemble((head, "dim"), flatten(str(item["text"])))
    if len(items) > _MAX_ITEMS:
        yield Text(f"{_MARGIN}and {count_noun(len(items) - _MAX_ITEMS, f'more {noun}')}", "dim")


def _end(event: Final) -> Iterator[Text]:
    if event.silent:
        yield Text("  no answer", "dim")
    if event.leaks:
        families = ", ".join(sorted({leak.family for leak in event.leaks}))
        calls = count_noun(len(event.leaks), "call")
        yield Text(f"  the model wrote {calls} as text ({families}): hidden, not run", "yellow")
    if event.degraded:
        yield Text("  degraded: the model returned no clean answer", "yellow")
