"""The visible text of a turn: the model's answers without leaked tool calls and name prefixes."""

import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from weakref import WeakSet

from memrecall.chat.events import LeakReport, TextDelta, TextEvent, TextRetracted
from memrecall.text.leaks import LeakFilter, LeakMode, Reasoning

_log = logging.getLogger(__name__)

SILENCE = "[pass]"  # the answer of a group member that chooses not to speak
PARAGRAPH_BREAK = "\n\n"  # between the texts of two answers
_BARE_WORD = "pass"
_LONGEST_PASS = 16  # characters of an answer that is the bare word with punctuation
_OPENING_MARKS = r"[*_`【\[「<(]{0,3}"
_CLOSING_MARKS = r"[*_`】\]」>)]{0,3}"
_AFTER_NAME = re.compile(rf"{_CLOSING_MARKS}\s?(?:[:：]{_CLOSING_MARKS}\s*)?")
_PASS_SIGN = re.compile(r"[*_`\"“]{0,3}[\[【［]\s?pass\s?[\]】］]", re.IGNORECASE)
_AFTER_SIGN = ' \t\n*_`"”.。!！,，;；:：—-'
_REST = rf"[{re.escape(_AFTER_SIGN)})）]{{0,16}}"
_BEFORE_WORD = r"(?<=\n)[^\w\n]{0,8}"
_PARTIAL_WORD = r"(?:p|pa|pas|pass{rest})?"
# The sign at the end of an answer, the bare word on its last line, and what may become them.
_LAST_SIGN = rf"[\[【［]\s?pass\s?[\]】］]{_REST}"
_LAST_WORD = rf"{_BEFORE_WORD}pass{_REST}"
_PARTIAL_SIGN = r"[\[【［]\s?" + _PARTIAL_WORD.format(rest=rf"\s?(?:[\]】］]{_REST})?")
_PARTIAL_LAST_WORD = _BEFORE_WORD + _PARTIAL_WORD.format(rest=_REST)
_LONGEST_SIGN = 48  # characters


class PrefixFilter:
    """A filter of one member's answers: its own name before them, and silence.

    The result does not depend on how an answer is split into chunks. A member that `may_pass` is
    silent with any answer that begins or ends with the pass sign or is its bare word; for a member
    that must speak only the sign itself is removed.
    """

    def __init__(self, names: Sequence[str], *, may_pass: bool) -> None:
        self.may_pass = may_pass
        words = [rf"|{_LAST_WORD}", rf"|{_PARTIAL_LAST_WORD}"] if may_pass else ["", ""]
        self._last_sign = re.compile(rf"(?:{_LAST_SIGN}{words[0]})\Z", re.IGNORECASE)
        self._partial_sign = re.compile(rf"(?:{_PARTIAL_SIGN}{words[1]})\Z", re.IGNORECASE)
        self._names = [name.casefold() for name in names if name]
        any_name = "|".join(re.escape(name) for name in sorted(names, key=len, reverse=True))
        self._own_name = re.compile(
            rf"{_OPENING_MARKS}(?:{any_name}){_CLOSING_MARKS}\s?[:：]{_CLOSING_MARKS}\s*",
            re.IGNORECASE,
        )

    def read(self, text: str, *, last: bool) -> str | None:
        """Return what to show of an answer's beginning, "" if undecided, None for a silence.

        `last` means that no more text will come.
        """
        if self._may_become_name(text) and not last:
            return ""
        if name := self._own_name.match(text):
            text = text[name.end() :]
        if sign := _PASS_SIGN.match(text):
            return self._read_after_sign(text[sign.end() :], last)
        if len(text.rstrip()) <= _LONGEST_PASS:
            word = re.sub(r"[\W_]+", "", text).lower()
            if last and self.may_pass and word == _BARE_WORD:
                return None
            if not last and _BARE_WORD.startswith(word):
                return ""
        return text

    def find_last_sign(self, text: str, *, last: bool) -> int | None:
        """Return where a pass sign at the end of a text begins, or may begin unless `last`."""
        tail = max(len(text) - _LONGEST_SIGN, 0)
        sign = (self._last_sign if last else self._partial_sign).search(text, tail)
        return sign.start() if sign and sign[0] else None

    def _read_after_sign(self, rest: str, last: bool) -> str | None:
        rest = rest.lstrip(_AFTER_SIGN)
        if self.may_pass or (last and not rest):
            return None
        return rest

    def _may_become_name(self, text: str) -> bool:
        """Return True if more text could complete a name and a colon."""
        marks = re.match(_OPENING_MARKS, text)
        last_start = marks.end() if marks else 0
        return any(self._may_begin_name(text[start:].casefold()) for start in range(last_start + 1))

    def _may_begin_name(self, text: str) -> bool:
        return any(
            name.startswith(text)
            or (text.startswith(name) and _AFTER_NAME.fullmatch(text, len(name)))
            for name in self._names
        )


_OPENED_BY_PROMPT: WeakSet[object] = WeakSet()  # clients whose answers begin inside reasoning


@dataclass(frozen=True, slots=True)
class AnswerReasoning:
    """How the reasoning in the answers of one client is handled.

    With "auto", an answer that ends reasoning without having begun it teaches that the prompt of
    this model opens it: nothing of the following answers is shown before reasoning ends.
    """

    client: object
    setting: Reasoning = "auto"

    @property
    def of_next_answer(self) -> Reasoning:
        """The setting of the filter of the next answer."""
        is_open = self.setting == "auto" and self.client in _OPENED_BY_PROMPT
        return "open" if is_open else self.setting

    def learn(self, leaks: LeakFilter) -> None:
        """Learn from the filter of a finished answer that had text."""
        if self.setting == "auto" and leaks.has_retracted:
            _OPENED_BY_PROMPT.add(self.client)
        elif leaks.is_in_reasoning:  # no end: the answer may have had no reasoning
            _OPENED_BY_PROMPT.discard(self.client)


class VisibleText:
    """The text of one turn over all answers of its model.

    Each answer has a leak filter of its own, and whitespace around it is dropped. In a group a
    `prefix_filter` removes the member's own name and detects silence. Text that turns out to be
    reasoning, or silence, is retracted. `on_leak` is called with the family of each leak as soon as
    its answer ends.
    """

    def __init__(
        self,
        tool_names: Sequence[str],
        model: str,
        reasoning: AnswerReasoning,
        *,
        mode: LeakMode = "strict",
        prefix_filter: PrefixFilter | None = None,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self._tools = tuple(tool_names)
        self._model = model
        self._reasoning = reasoning
        self._mode: LeakMode = mode
        self._prefix_filter = prefix_filter
        self._on_leak = on_leak
        self.text = ""
        self.leaks: list[LeakReport] = []
        self.begin()
        self._is_over = True  # no answer is in progress

    def begin(self) -> None:
        """Start a new answer of the model."""
        self._leak_filter = LeakFilter(
            self._tools, reasoning=self._reasoning.of_next_answer, mode=self._mode
        )
        self._has_retracted = False
        self._has_input = False
        self._pending = ""
        self._earlier_text = self.text  # of the answers before
        self.has_text = self.has_leaks = self.is_silent = False
        self._is_over = False

    def feed(self, chunk: str) -> list[TextEvent]:
        """Take a chunk of the answer; return what changes for the reader."""
        self._has_input = self._has_input or bool(chunk.strip())
        return self._show(self._leak_filter.feed(_remove_unstorable(chunk)))

    def end(self) -> list[TextEvent]:
        """End the answer; return what changes for the reader."""
        self._is_over = True
        events = self._show(self._leak_filter.close(), last=True)
        if self._has_input:
            self._reasoning.learn(self._leak_filter)
        self._report_leaks()
        return events

    def abort(self) -> None:
        """End an interrupted answer, dropping its pending text; do nothing after `end`."""
        if not self._is_over:
            self._is_over = True
            self._leak_filter.close()
            self._report_leaks()

    def add(self, text: str) -> list[TextEvent]:
        """Add a text of the program's own; return what changes for the reader."""
        self.begin()
        return self._show(text, last=True)

    def _report_leaks(self) -> None:
        for leak in self._leak_filter.leaks:
            name = leak.name if leak.name in self._tools else "a tool"
            _log.error(
                "%s wrote a call of %s as text (%s); it was not run", self._model, name, leak.family
            )
            self.leaks.append(LeakReport(leak.family, leak.name))
            self.has_leaks = True
            if self._on_leak is not None:
                self._on_leak(leak.family)

    def _show(self, text: str, *, last: bool = False) -> list[TextEvent]:
        """Return the events of new text; keep trailing whitespace and undecided text pending."""
        events: list[TextEvent] = []
        if self._leak_filter.has_retracted and not self._has_retracted:
            self._has_retracted, self.is_silent = True, False
            events = self._retract()
        if self.is_silent:
            return events
        filtered = self._filter_member(self._pending + text, last)
        if filtered is None:
            return [*events, *self._fall_silent()]
        text, visible = filtered
        if not self.has_text and not visible:
            return events
        self._pending = text[len(visible) :]
        if not visible:
            return events
        if not self.has_text and self.text:
            visible = PARAGRAPH_BREAK + visible
        self.has_text = True
        self.text += visible
        return [*events, TextDelta(visible)]

    def _filter_member(self, text: str, last: bool) -> tuple[str, str] | None:
        """Return a text without its prefix, and the part to show now; None for a silence."""
        if not self.has_text:
            self._pending = text = text.lstrip()
        if self._prefix_filter is None or not text:
            return text, text.rstrip()
        if not self.has_text:
            shown = self._prefix_filter.read(text, last=last)
            if shown is None:
                return None
            text = shown.lstrip()
        end = self._prefix_filter.find_last_sign(text, last=last)
        if last and end is not None and self._prefix_filter.may_pass:
            return None
        return text, text[:end].rstrip()

    def _fall_silent(self) -> list[TextEvent]:
        """Take back the text; a member that may pass has said nothing in the whole turn."""
        self.is_silent = True
        if self._prefix_filter is not None and self._prefix_filter.may_pass:
            self._earlier_text = ""
        return self._retract()

    def _retract(self) -> list[TextEvent]:
        """Take back the text of this answer; return the event if there is any."""
        was_shown = self.text != self._earlier_text
        self.text, self.has_text, self._pending = self._earlier_text, False, ""
        return [TextRetracted(self.text)] if was_shown else []


def _remove_unstorable(chunk: str) -> str:
    """Return a chunk without NUL and lone surrogates, which no database can store."""
    return chunk.replace("\0", "").encode("utf-8", "ignore").decode()
