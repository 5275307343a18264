"""The visible text of a turn: the model's answers without leaked tool calls and name prefixes."""

import logging
import re
from collections.abc import Callable, Sequence

from memrecall.chat.events import LeakReport
from memrecall.text.leaks import LeakFilter

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


class PrefixFilter:
    """A filter of the beginnings of one member's answers: its own name, and silence.

    The result does not depend on how an answer is split into chunks. A member that `may_pass` is
    silent with any answer that begins with the pass sign or is its bare word; for a member that
    must speak only the sign itself is removed.
    """

    def __init__(self, names: Sequence[str], *, may_pass: bool) -> None:
        self._may_pass = may_pass
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
            if last and self._may_pass and word == _BARE_WORD:
                return None
            if not last and _BARE_WORD.startswith(word):
                return ""
        return text

    def _read_after_sign(self, rest: str, last: bool) -> str | None:
        rest = rest.lstrip(_AFTER_SIGN)
        if self._may_pass or (last and not rest):
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


class VisibleText:
    """The text of one turn over all answers of its model; shown text is never retracted.

    Each answer has a leak filter of its own, and whitespace around it is dropped. In a group a
    `prefix_filter` removes the member's own name and detects silence. `on_leak` is called with the
    family of each leak as soon as its answer ends.
    """

    def __init__(
        self,
        tool_names: Sequence[str],
        model: str,
        *,
        prefix_filter: PrefixFilter | None = None,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self._tools = tuple(tool_names)
        self._model = model
        self._prefix_filter = prefix_filter
        self._on_leak = on_leak
        self._is_over = True  # no answer is in progress
        self._leak_filter = LeakFilter(self._tools, reasoning="strip")
        self._pending = ""
        self.text = ""
        self.leaks: list[LeakReport] = []
        # Of the current answer:
        self.has_text = False
        self.has_leaks = False
        self.is_silent = False

    def begin(self) -> None:
        """Start a new answer of the model."""
        self._leak_filter = LeakFilter(self._tools, reasoning="strip")
        self._pending = ""
        self.has_text = self.has_leaks = self.is_silent = False
        self._is_over = False

    def feed(self, chunk: str) -> str:
        """Take a chunk of the answer; return the text to show now."""
        return self._show(self._leak_filter.feed(_remove_unstorable(chunk)))

    def end(self) -> str:
        """End the answer; return the pending text to show."""
        self._is_over = True
        text = self._show(self._leak_filter.close(), last=True)
        self._report_leaks()
        return text

    def abort(self) -> None:
        """End an interrupted answer, dropping its pending text; do nothing after `end`."""
        if not self._is_over:
            self._is_over = True
            self._leak_filter.close()
            self._report_leaks()

    def add(self, text: str) -> str:
        """Add a text of the program's own; return what to show."""
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

    def _show(self, text: str, *, last: bool = False) -> str:
        """Return new text to show; keep trailing whitespace and undecided prefixes pending."""
        if self.is_silent:
            return ""
        text = self._pending + text
        if not self.has_text:
            text = self._filter_prefix(text.lstrip(), last)
        visible = text.rstrip()
        if not self.has_text and not visible:
            return ""
        self._pending = text[len(visible) :]
        if not visible:
            return ""
        if not self.has_text and self.text:
            visible = PARAGRAPH_BREAK + visible
        self.has_text = True
        self.text += visible
        return visible

    def _filter_prefix(self, text: str, last: bool) -> str:
        self._pending = text
        if self._prefix_filter is None or not text:
            return text
        shown = self._prefix_filter.read(text, last=last)
        self.is_silent = shown is None
        return (shown or "").lstrip()


def _remove_unstorable(chunk: str) -> str:
    """Return a chunk without NUL and lone surrogates, which no database can store."""
    return chunk.replace("\0", "").encode("utf-8", "ignore").decode()
