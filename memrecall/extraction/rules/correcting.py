"""Corrections of what was just said: "Actually, it's Tuesday", 不对，是周二, "I meant Lyon"."""

import re
from dataclasses import replace

from memrecall.extraction.rules.dating import Moment, times_in
from memrecall.extraction.rules.speech import Sentence
from memrecall.extraction.rules.statements import Statement

_ENGLISH = re.compile(
    r"(?:(?:actually|no|nope|sorry|wait|correction|oops|my bad|scratch that|hmm|well"
    r"|i was wrong|i misspoke|my mistake|typo)[,.:! -]*)*"
    r"(?:(?:no,? )?(?:it'?s|it is|it will be|it'll be|that'?s|that is|they'?re|i "
    r"mean(?:t)?|make (?:it|that)|it (?:was|got|has been) (?:moved|changed|rescheduled"
    r"|pushed)"
    r"(?: back)? to|they moved it to|we moved it to|should be|it should be)(?: "
    r"(?:actually|now|on))? )?"
    r"(?P<new>[^,]{1,40}?)(?:,? (?:and )?not (?:on |in |at )?(?P<old>[^,]{1,40}))?",
    re.IGNORECASE,
)
_CUE = re.compile(
    r"^(?:actually|no\b|nope|sorry|wait|correction|oops|my bad|scratch that"
    r"|i was wrong|i misspoke|my mistake|typo|i mean|make "
    r"(?:it|that)|it'?s|it is|it'll|it will|it (?:was|got|has been) "
    r"(?:moved|changed|rescheduled|pushed)|they moved it|we moved it|should be|it should|that'?s)",
    re.IGNORECASE,
)
_CHINESE = re.compile(
    "(?:(?:不对|不是|我?(?:刚才)?[说打记搞写弄]错了?|更正(?:一下)?|纠正(?:一下)?|哦不|啊不"
    "|抱歉|不好意思|等等|其实)[，,。!！ ]*)*"
    "(?:应该是|应该|其实是|是|改成了?|改到了?|改为|换成|推迟到了?"
    "|提前到了?)*(?P<new>[^，,]{1,16}?)(?:[，,]?(?:而?不是|不是)(?P<old>[^，,]{1,16}))?了?"
)
_CUE_ZH = re.compile(
    "^(?:不对|不是|我?(?:刚才)?[说打记搞写弄]错|更正|纠正|哦不|啊不|不好意思|抱歉|应该是|其实是|改成|改到|改为"
    "|推迟到|提前到|是.{1,12}不是)"
)


def correct(sentence: Sentence, before: Statement, moment: Moment) -> Statement | None:
    """The statement before with what the sentence changes in it; None if it changes nothing."""
    chinese = sentence.language == "zh"
    cue, pattern = (_CUE_ZH, _CHINESE) if chinese else (_CUE, _ENGLISH)
    match = pattern.fullmatch(sentence.text) if cue.match(sentence.text) else None
    if match is None or before.language != sentence.language:
        return None
    new, old = match["new"].strip(), (match["old"] or "").strip()
    text = _replaced(before, new, old, moment)
    if text is None or text == before.text:
        return None
    value = before.value.replace(old, new) if old else before.value
    return replace(before, text=text, value=value, edges=())


def _replaced(before: Statement, new: str, old: str, moment: Moment) -> str | None:
    if old and old in before.text:
        return before.text.replace(old, new)
    if times_in(new, moment):
        said = times_in(before.text, moment)
        if said:
            at = said[-1].position
            lead = re.match(r"(?:on|in|at) ", said[-1].text, re.IGNORECASE)
            words = (
                new
                if re.match(r"(?:on|in|at|next|tomorrow|today|this)\b", new, re.IGNORECASE)
                or not lead
                else lead.group() + new
            )
            return before.text[:at] + words + before.text[at + len(said[-1].text) :]
        return None
    short = len(new.split()) <= 4 and len(new) <= 30
    filled = before.field is not None and before.value and before.value in before.text
    return before.text.replace(before.value, new) if short and filled and not old else None
