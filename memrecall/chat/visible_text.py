"""The visible text of a turn: the model's answers without leaked tool calls and name prefixes."""

import logging
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from weakref import WeakSet

from memrecall.chat.events import LeakReport, TextChange, TextDelta, TextRetracted
from memrecall.chat.mentions import FOLDS
from memrecall.text.leaks import LeakFilter, LeakMode, Reasoning

_log = logging.getLogger(__name__)

SILENCE = "[pass]"  # the answer of a group member that chooses not to speak
PARAGRAPH_BREAK = "\n\n"  # between the texts of two answers
_BARE_WORD = "pass"
_LONGEST_PASS = 16  # characters of an answer that is the bare word with punctuation
_OPENING_MARKS = r"[*_`【\[「<(]{0,3}"
_TIME = r"(?:[0-9][0-9:：/\-年月日T ]{0,20}[\])）]?\s?)?"  # “10:03 Ann: thanks”
_WHOLE_TIME = re.compile(r"[\W_]*(?:[0-9]+[:：/\-年月日T ]*){2,}[\])）]?\s?[\W_]*")
_MARKS_AFTER = "*_`】]」>)"
_CLOSING_MARKS = rf"[{re.escape(_MARKS_AFTER)}]{{0,3}}"
_BRACKETED = r"[^()（）\n]"  # a time or an id in brackets after the name
_COLON = re.compile(
    rf"{_CLOSING_MARKS}(?:\s?[(（]{_BRACKETED}{{1,24}}[)）])?\s?[:：]{_CLOSING_MARKS}\s*"
)
# What may be followed by the rest of a colon's pattern.
_AFTER_NAME = re.compile(
    rf"{_CLOSING_MARKS}\s?(?:[(（]{_BRACKETED}{{0,24}}(?:[)）]\s?)?)?"
    rf"|{_COLON.pattern}"
)
_LONGEST_DECORATION = 40  # characters around a name
_FENCE = re.compile(r"^[^\S\n]{0,3}(?:`{3,}|~{3,})", re.MULTILINE)
_REASON = r"[^\[\]【】［］\n]{0,100}"
_PASS_WITH_REASON = rf"pass\s?(?:[:：,，—–-]{_REASON})?"
_PASS_SIGN = re.compile(rf"[*_`\"“]{{0,3}}[\[【［]\s?{_PASS_WITH_REASON}[\]】］]", re.IGNORECASE)
_AFTER_SIGN = ' \t\n*_`"”.。!！,，;；:：—-'
_REST = rf"[{re.escape(_AFTER_SIGN)})）]{{0,16}}"
_BEFORE_WORD = r"(?<=\n)[^\w\n]{0,8}"
_PARTIAL_WORD = r"(?:p|pa|pas|{word})?"
# Without brackets a reason must say that there is nothing to say: “pass - nothing to add”.
_WORD_WITH_REASON = rf"pass\s?[:：—–-]{{1,3}}{_REASON}"
_DENIAL = r"(?=[^\n]*?(?:\b(?:no|nothing|none|not)\b|n['’]t\b|[没无不]))"
_PASS_WORD = re.compile(rf"[^\w\n]{{0,8}}{_DENIAL}{_WORD_WITH_REASON}\s*", re.IGNORECASE)
_PARTIAL_PASS_WORD = re.compile(rf"[^\w\n]{{0,8}}{_WORD_WITH_REASON}\s*", re.IGNORECASE)
_REMARK = r"(?:[(（][^()（）\n]{0,100}[)）]\s*)?"  # “[pass] (Nothing to add.)”
# The sign at the end of an answer, the bare word on its last line, and what may become them.
_LAST_SIGN = rf"[\[【［]\s?{_PASS_WITH_REASON}[\]】］]{_REST}{_REMARK}"
_LAST_WORD = rf"(?:{_BEFORE_WORD}|[(（]\s?)(?:pass{_REST}|{_DENIAL}{_WORD_WITH_REASON}\s*)"
_PARTIAL_SIGN = r"[\[【［]\s?" + _PARTIAL_WORD.format(
    word=rf"{_PASS_WITH_REASON}(?:[\]】］]{_REST}(?:[(（][^()（）\n]{{0,100}}|{_REMARK}))?"
)
_PARTIAL_LAST_WORD = rf"(?:{_BEFORE_WORD}|[(（]\s?)" + _PARTIAL_WORD.format(
    word=rf"(?:pass{_REST}|{_WORD_WITH_REASON}\s*)"
)
_LONGEST_SIGN = 280  # characters, with a reason and a remark


class SpeakerNames:
    """Names before a colon at the beginning of a line, as in a transcript: “Ann: thanks”."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = [name.translate(FOLDS) for name in names if name]
        self._longest = max(map(len, self._names), default=0) + _LONGEST_DECORATION

    def may_open(self, line: str) -> bool:
        """Return True if more text could make the line begin with a name and a colon."""
        return any(
            name.startswith(rest)
            or (rest.startswith(name) and _AFTER_NAME.fullmatch(rest, len(name)))
            for rest in self._without_marks(line)
            for name in self._names
        )

    def find_end(self, line: str) -> int | None:
        """Return where the text after a name and its colon begins, or None without one."""
        for rest in self._without_marks(line):
            before = line[: len(line) - len(rest)]
            if any(map(str.isdigit, before)) and not _WHOLE_TIME.fullmatch(before):
                continue  # a number: “1 Ann: …” may be the item of a list
            for name in self._names:
                colon = _COLON.match(rest, len(name)) if rest.startswith(name) else None
                if colon is not None:
                    return len(line) - len(rest) + colon.end()
        return None

    def _without_marks(self, line: str) -> Iterator[str]:
        """Yield the folded line from every place at which a name could begin."""
        folded = line[: self._longest].translate(FOLDS) + line[self._longest :]
        marks = re.match(_OPENING_MARKS + _TIME + _OPENING_MARKS, folded)
        for start in range((marks.end() if marks else 0) + 1):
            yield folded[start:]


class MemberFilter:
    """A filter of one member's answers: its own name before them, silence, other speakers.

    The result does not depend on how an answer is split into chunks. A member that `may_pass` is
    silent with any answer that begins or ends with the pass sign or is its bare word; for a member
    that must speak only the sign itself is removed. An answer ends where it goes on as another
    member; lists of members after a colon, and code, are kept.
    """

    def __init__(self, names: Sequence[str], others: Iterable[str] = (), *, may_pass: bool) -> None:
        self.may_pass = may_pass
        words = [rf"|{_LAST_WORD}", rf"|{_PARTIAL_LAST_WORD}"] if may_pass else ["", ""]
        self._last_sign = re.compile(rf"(?:{_LAST_SIGN}{words[0]})\Z", re.IGNORECASE)
        self._partial_sign = re.compile(rf"(?:{_PARTIAL_SIGN}{words[1]})\Z", re.IGNORECASE)
        self._own = SpeakerNames(names)
        own = {name.translate(FOLDS) for name in names}
        self._others = SpeakerNames(name for name in others if name.translate(FOLDS) not in own)

    def read(self, text: str, *, last: bool) -> str | None:
        """Return what to show of an answer's beginning, "" if undecided, None for a silence.

        `last` means that no more text will come.
        """
        if self._own.may_open(text) and not last:
            return ""
        text = text[self._own.find_end(text) or 0 :]
        if sign := _PASS_SIGN.match(text):
            rest = text[sign.end() :].lstrip(_AFTER_SIGN)
            return None if self.may_pass or (last and not rest) else rest
        if len(text.rstrip()) <= _LONGEST_PASS:
            word = re.sub(r"[\W_]+", "", text).lower()
            if last and self.may_pass and word == _BARE_WORD:
                return None
            if not last and _BARE_WORD.startswith(word):
                return ""
        if self.may_pass and (_PASS_WORD if last else _PARTIAL_PASS_WORD).fullmatch(text):
            return None if last else ""
        return text

    def find_last_sign(self, text: str, *, last: bool) -> int | None:
        """Return where a pass sign at the end of a text begins, or may begin unless `last`."""
        tail = max(len(text) - _LONGEST_SIGN, 0)
        sign = (self._last_sign if last else self._partial_sign).search(text, tail)
        return sign.start() if sign and sign[0] else None

    def find_other_speaker(self, before: str, text: str, *, last: bool) -> tuple[int | None, bool]:
        """Return where another member begins to speak, or may begin, and whether it is certain.

        `before` is what was shown of the answer, and `text` what follows it.
        """
        start = 0 if not before else text.find("\n") + 1
        while start or not before:
            end = text.find("\n", start)
            line = text[start : end if end >= 0 else None].lstrip()
            is_certain = self._others.find_end(line) is not None
            is_open = end < 0 and not last and bool(line) and self._others.may_open(line)
            if (is_certain or is_open) and not self._is_listed(before + text[:start]):
                return start, is_certain
            if end < 0:
                break
            start = end + 1
        return None, False

    def _is_listed(self, before: str) -> bool:
        """Return True if a line after a text is in code, or in a list that a colon introduces."""
        if len(_FENCE.findall(before)) % 2:
            return True
        line = before.rstrip().rpartition("\n")[2]
        is_introduced = line.rstrip(_MARKS_AFTER).endswith((":", "："))
        return is_introduced or self._others.find_end(line) is not None


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
    `member_filter` removes the member's own name, detects silence, and ends the answer where it
    goes on as another member. Text that turns out to be reasoning, or silence, is retracted.
    `on_leak` is called with the family of each leak as soon as its answer ends.
    """

    def __init__(
        self,
        tool_names: Sequence[str],
        model: str,
        reasoning: AnswerReasoning,
        *,
        mode: LeakMode = "strict",
        member_filter: MemberFilter | None = None,
        on_leak: Callable[[str], None] | None = None,
    ) -> None:
        self._tools = tuple(tool_names)
        self._model = model
        self._reasoning = reasoning
        self._mode: LeakMode = mode
        self._member_filter = member_filter
        self._on_leak = on_leak
        self.text = self._preamble = ""  # what the last answer said before a leak or a call
        self._is_before_call = False  # the preamble is
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
        self.has_text = self.has_leaks = self.is_silent = self._is_cut = False
        self.is_repeated = False
        self._is_over = False

    def feed(self, chunk: str) -> list[TextChange]:
        """Take a chunk of the answer; return what changes for the reader."""
        self._has_input = self._has_input or bool(chunk.strip())
        # No database can store NUL and lone surrogates.
        storable = chunk.replace("\0", "").encode("utf-8", "ignore").decode()
        return self._show(self._leak_filter.feed(storable))

    def end(self, *, has_calls: bool = False) -> list[TextChange]:
        """End the answer, which may have real calls; return what changes for the reader."""
        self._is_over = True
        events = self._show(self._leak_filter.close(), last=True)
        if self._has_input:
            self._reasoning.learn(self._leak_filter)
        self._report_leaks()
        if self.has_leaks or has_calls:
            self._preamble = self.text[len(self._earlier_text) :].strip() or self._preamble
            self._is_before_call = has_calls
        return events

    def abort(self) -> None:
        """End an interrupted answer, dropping its pending text; do nothing after `end`."""
        if not self._is_over:
            self._is_over = True
            self._leak_filter.close()
            self._report_leaks()

    def add(self, text: str) -> list[TextChange]:
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

    def _show(self, text: str, *, last: bool = False) -> list[TextChange]:
        """Return the events of new text; keep trailing whitespace and undecided text pending."""
        events: list[TextChange] = []
        if self._leak_filter.has_retracted and not self._has_retracted:
            self._has_retracted, self.is_silent = True, False
            events = self._retract()
        if self.is_silent or self._is_cut:
            return events
        filtered = self._filter_member(self._pending + text, last)
        if filtered is None:
            self.is_silent = True
            if self._member_filter is not None and self._member_filter.may_pass:
                self._earlier_text = ""  # it has said nothing in the whole turn
            return [*events, *self._retract()]
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
        if not self.has_text and self._member_filter is not None and text:
            shown = self._member_filter.read(text, last=last)
            if shown is None:
                return None
            text = shown.lstrip()
        if not self.has_text and self._preamble:
            text = self._without_preamble(text, last)
        if self._member_filter is None or not text:
            return text, text.rstrip()
        return self._filter_end(self._member_filter, text, last)

    def _without_preamble(self, text: str, last: bool) -> str:
        """Return an answer without a preamble that was shown, "" while that is undecided."""
        rest = text.removeprefix(self._preamble)
        if self._preamble.startswith(text.rstrip()) or not rest.strip():
            self.is_repeated = last and self._is_before_call and not rest.strip()
            return text if last and not (self.is_repeated or self._leak_filter.leaks) else ""
        is_said = rest[0].isspace() or not self._preamble[-1].isalnum()
        return rest.lstrip() if len(rest) < len(text) and is_said else text

    def _filter_end(
        self, member_filter: MemberFilter, text: str, last: bool
    ) -> tuple[str, str] | None:
        before = self.text[len(self._earlier_text) :]
        end, self._is_cut = member_filter.find_other_speaker(before, text, last=last)
        own = text[:end]
        last = last or self._is_cut
        sign = member_filter.find_last_sign(own, last=last)
        if last and sign is not None and member_filter.may_pass:
            return None
        return own if self._is_cut else text, own[:sign].rstrip()

    def _retract(self) -> list[TextChange]:
        """Take back the text of this answer; return the event if there is any."""
        was_shown = self.text != self._earlier_text
        self.text, self.has_text, self._pending = self._earlier_text, False, ""
        self._is_cut = False
        return [TextRetracted(self.text)] if was_shown else []
