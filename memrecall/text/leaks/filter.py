"""The filter for a model's answer, as a whole or as it is streamed."""

from collections.abc import Iterable

from memrecall.text.leaks.buffer import ScanMode
from memrecall.text.leaks.engine import LeakScanner
from memrecall.text.leaks.matchers import LeakMode, Reasoning
from memrecall.text.leaks.reports import Filtered, Leak


def filter_leaks(
    text: str,
    tool_names: Iterable[str] = (),
    *,
    reasoning: Reasoning = "keep",
    mode: LeakMode = "lenient",
) -> Filtered:
    """Return what a reader may see of a whole text, and the calls in it."""
    leaks = LeakFilter(tool_names, reasoning=reasoning, mode=mode)
    visible, had_retracted = leaks.feed(text), leaks.has_retracted
    rest = leaks.close()
    is_retracted = leaks.has_retracted and not had_retracted
    return Filtered(rest if is_retracted else visible + rest, leaks.leaks)


class LeakFilter(LeakScanner):
    """A filter that hides tool calls written as text, in whatever pieces the text arrives.

    Use one filter per answer. Everything from the first call on is hidden, because it relies on a
    call that was never made; only a channel addressed to the reader is shown again. Calls are never
    executed.

    `mode` "lenient" leaves Markdown code alone, and control tokens without the rest of a call;
    "strict" hides such tokens, and in code DeepSeek's and those that a registered tool's name
    follows.

    `reasoning` says what happens to reasoning: "keep" or "strip" it; "open": strip it, and the text
    begins inside reasoning; "auto": strip it, and if it ends without having begun, `has_retracted`
    becomes True, which means that all text returned by earlier calls was reasoning.
    """

    @property
    def leaks(self) -> list[Leak]:
        """The calls found so far, in order; a name may become known later."""
        return [leak for hidden in self._hidden_texts for leak in hidden.leaks()]

    @property
    def held(self) -> str:
        """The text that is withheld for now, because it may turn out to be a call."""
        return "" if self._mode in (ScanMode.REASONING, ScanMode.AFTER_CALL) else self._buffer.held

    @property
    def is_in_reasoning(self) -> bool:
        """Whether the text so far ends inside reasoning."""
        return self._mode is ScanMode.REASONING

    def feed(self, chunk: str) -> str:
        """Process the next piece of the text, and return what becomes visible."""
        if self._buffer.is_final:
            raise ValueError("the filter is closed; create a new one for each answer")
        return self._process(chunk)

    def close(self) -> str:
        """End the text, and return the rest of what is visible."""
        if self._buffer.is_final:
            return ""
        self._buffer.is_final = True
        visible = self._process("")
        if self._pending_call is not None:
            self._hidden_texts.append(self._pending_call)
        return visible
