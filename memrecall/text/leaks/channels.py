"""The tables of reasoning, of answers and of ends of turns, in the language of `formats.py`."""

import re
from dataclasses import dataclass

from memrecall.text.leaks.formats import START_TOKEN, FormatKind, FormatRow, StartPosition

MAX_AMBIGUOUS_LENGTH = 32_768  # after so many characters without an answer it is reasoning
_ANY, _, _MARK, _SENTENCE, _LINE, _START = StartPosition


@dataclass(frozen=True, slots=True)
class ReasoningFormat:
    """Reasoning between two markers, hidden always or on request.

    With channels, a call inside counts at once; otherwise only if the reasoning never ends, because
    models consider calls before they make them. Ambiguous reasoning begins like prose: it counts if
    an answer or a call of its channels follows.
    """

    family: str
    starts: tuple[tuple[str, StartPosition], ...]
    end: str
    stray_end: str = ""  # a character that follows the end outside reasoning, if it is no mention
    is_always_hidden: bool = False
    has_channels: bool = False
    exact: bool = False
    is_ambiguous: bool = False


@dataclass(frozen=True, slots=True)
class AnswerChannel:
    """A channel addressed to the reader, shown even after a call of its families.

    `is_standalone` says that its start is enough, with nothing of its families before it. Nothing
    is shown after the end of the last channel.
    """

    families: tuple[str, ...]
    begin: str
    end: str | None = None
    start_position: StartPosition = StartPosition.ANYWHERE
    is_standalone: bool = True
    is_last: bool = False


_END_TOKEN = r"\L\|(end|return)\|\G"  # noqa: S105
_LETTER = r"[^ -@[-`{-~\s，。；：！？、（）《》“”‘’…—]"
_SENTENCE_START = r"([A-Z][A-Za-z']*,? [a-z]|[^ -~\s，。；：！？、（）《》“”‘’…—])"  # a sentence
# A tag that is only mentioned is followed by punctuation, by a blank and a small letter, or by
# Chinese words that no reasoning begins with: `<think> 标签`, `<think> 和 </think> 之间`.
_PUNCTUATION = r".,;:!?)\]\"'”’|，。；：！？、）》"
_MENTION_CHARACTERS = "和与或及的块等"
# A first character, and those that may follow it.
_MENTION_WORDS = (
    *("标签记识", "之间后前内中外", "里的面是边", "中的间是", "内的部容", "后的面"),
    *("表示明", "用于来", "这对种", "符号", "部分", "是推思指用"),
)
_FIRSTS = _MENTION_CHARACTERS + "".join(word[0] for word in _MENTION_WORDS)
_OTHERS = "|".join(f"{word[0]}[^{word[1:]}]" for word in _MENTION_WORDS)
_REASONING_START = (
    rf"§(\s*\n|[^\s{_PUNCTUATION}{_FIRSTS}]|[ \t]+[^a-z\s|{_FIRSTS}]|[ \t]*({_OTHERS}))"
)
_AFTER_STRAY_END = rf"§[^{_PUNCTUATION}{_MENTION_CHARACTERS}标之里]"
REASONING_FORMATS = (
    ReasoningFormat(
        "harmony",
        ((START_TOKEN + r"\L\|channel\|\G\s*analysis\s*\L\|message\|\G", _ANY),),
        _END_TOKEN,
        is_always_hidden=True,
        has_channels=True,
    ),
    ReasoningFormat(
        "harmony_stripped",
        (
            (r"(analysis|commentary)(\s*\n\s*)?" + _LETTER, _START),
            (r"(analysis|commentary)\s*\n\s*" + _SENTENCE_START, _LINE),
            (r"(analysis|commentary)" + _SENTENCE_START, _SENTENCE),
        ),
        _END_TOKEN,
        is_always_hidden=True,
        has_channels=True,
        exact=True,
        is_ambiguous=True,
    ),
    ReasoningFormat(
        "kimi_k3",
        ((r"\L\|open\|\Gthink\L\|sep\|\G", _ANY),),
        r"\L\|close\|\Gthink\L\|sep\|\G",
        is_always_hidden=True,
    ),
    ReasoningFormat(
        "muse",
        (
            (r"\L\|start\|\Gassistant to=self\L\|message\|\G", _ANY),
            (r"to=self\L\|message\|\G", _LINE),
        ),
        r"\L\|eom\|\G",
        is_always_hidden=True,
    ),
    ReasoningFormat(
        "inkling",
        ((r"\L\|content_thinking\|\G", _ANY),),
        r"\L\|end_message\|\G",
        is_always_hidden=True,
    ),
    ReasoningFormat(
        "think",
        (
            (r"\L\H\A\G" + _REASONING_START, _LINE),
            (r"\L\H\G(\s*\n|[A-Za-z])", _ANY),
            (r"\L[a-z]+:\H\G", _ANY),
        ),
        r"\L/([a-z]+:)?\H\A\G",
        _AFTER_STRAY_END,
        exact=True,
    ),
    ReasoningFormat(
        "mistral",
        ((r"\[THINK\]" + _REASONING_START, _ANY),),
        r"\[/THINK\]",
        _AFTER_STRAY_END,
        exact=True,
    ),
    ReasoningFormat("gemma4", ((r"\L\|channel\Gthought", _ANY),), r"\Lchannel\|\G"),
    ReasoningFormat("cohere", ((r"\L\|START_THINKING\|\G", _ANY),), r"\L\|END_THINKING\|\G"),
    ReasoningFormat("kimi_vl", (("◁think▷", _ANY),), "◁/think▷"),
    ReasoningFormat("apertus", ((r"\L\|inner_prefix\|\G", _ANY),), r"\L\|inner_suffix\|\G"),
    ReasoningFormat(
        "openthinker", ((r"\L\|begin_of_thought\|\G", _ANY),), r"\L\|end_of_thought\|\G"
    ),
)

TAG_MENTION = re.compile(r"[<＜](?:think|thinking|thought|reasoning)[>＞]|\[THINK\]", re.IGNORECASE)
"""A reasoning tag that begins no reasoning: the text only mentions it."""

_HARMONIES = ("harmony", "harmony_stripped")
ANSWERS = (
    AnswerChannel(
        _HARMONIES,
        START_TOKEN + r"\L\|channel\|\G\s*final\s*(\L\|constrain\|\G\s*[a-z]*\s*)?\L\|message\|\G",
        _END_TOKEN,
        is_last=True,
    ),
    AnswerChannel(
        ("preamble",),  # not a family of calls: it announces one, so it is not shown after one
        START_TOKEN + r"\L\|channel\|\G\s*commentary\s*\L\|message\|\G\s*[^{\s]",
        _END_TOKEN,
    ),
    AnswerChannel(_HARMONIES, r"assistant\s?final", is_standalone=False),
    AnswerChannel(_HARMONIES, r"assistantfinal", start_position=_START),
    AnswerChannel(
        ("kimi_k3",),
        r"\L\|open\|\Gresponse\L\|sep\|\G",
        r"\L\|close\|\G(response|message)\L\|sep\|\G",
    ),
    AnswerChannel(
        ("muse",), r"(\L\|start\|\Gassistant )?to=user\L\|message\|\G", r"\L\|eo[mt]\|\G", _LINE
    ),
    AnswerChannel(
        ("inkling",), r"(\L\|message_model\|\G)?\L\|content_text\|\G", r"\L\|end_message\|\G"
    ),
    AnswerChannel(
        ("functionary",), r"(\L\|from\|\Gassistant\s*)?\L\|recipient\|\Gall\s*\L\|content\|\G"
    ),
    AnswerChannel(("cohere",), r"\L\|START_(RESPONSE|TEXT)\|\G", r"\L\|END_(RESPONSE|TEXT)\|\G"),
)

_TURN_END = (
    r"(\L(\B?([a-z]+:)?(eos|eo[tm]_id|im_end|end[_▁]?of[_▁]?(turn|text|sentence)(_token)?)\B?"
    r"|\B(eot|user|observation|ipython)\B|turn\|)\G|\[(\|endofturn\|\]|e~\[)"
    r"|\L\B(start_header_id|im_start)\B\G(user|ipython|tool))"
)
# An end is followed by nothing else on its line, by another token or directly by a word; after the
# end of a sentence by any words that do not make it the subject of one.
_NEXT_TURN = r"§([ \t\r]*(\n|\L[|｜/]|\[\||\L(start_of_turn|s)\G|\[/?INST)|[a-z0-9])"
_NEXT_SENTENCE = rf"[ \t]*[^\s<＜‹&\[*_{_PUNCTUATION}{_MENTION_CHARACTERS}是表标]"
TURN_ENDS = (
    FormatRow("struck", r"\Ls\G", kind=FormatKind.STRUCK),  # `<s>10</s>` is struck out in HTML
    *(
        FormatRow(family, token + after, position, FormatKind.END)
        for after, position in ((_NEXT_TURN, _ANY), (_NEXT_SENTENCE, _MARK))
        for family, token in (("end", _TURN_END), ("harmony", _END_TOKEN), ("struck", r"\L/s\G"))
    ),
)
