"""Messages that ask for something to be remembered; they need no model to be understood."""

import re

from memrecall.text.normalize import replace_characters

# At most twenty openings: what is not said with one of them is kept as a message.
_OPENINGS = (
    *("remember", "please remember", "note", "note to self", "make a note", "take a note"),
    *("please note", "don't forget", "keep in mind"),
    *("请记住", "帮我记住", "帮我记一下", "记住", "记一下", "备注", "别忘了"),
)
_NOTE = re.compile(
    rf"\s*(?:{'|'.join(map(re.escape, sorted(_OPENINGS, key=len, reverse=True)))})"
    r"(?P<mark>\s*[:,]\s*|\b|(?=[^\x00-\x7f了啦]))",  # 记住了 is an answer
    re.IGNORECASE,
)


def noted_text(text: str) -> str | None:
    """Return what a message asks to remember, in its own words; None if it does not ask.

    Only an opening that is set off by a mark is left out: "remember that time in Rome" and
    记住的单词 would else lose a part of what they say.
    """
    match = _NOTE.match(replace_characters(text))
    if match is None or text.rstrip().endswith(("?", "？")):
        return None
    note = text[match.end() :].strip()
    if len(re.findall(r"\w", note)) < 2:
        return None
    return note if match["mark"].strip() else text.strip()
