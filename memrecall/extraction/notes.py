"""Messages that ask for something to be remembered; they need no model to be understood."""

import re

# At most twenty openings: what is not said with one of them is kept as a message.
_OPENINGS = (
    *("remember that", "remember:", "remember,", "please remember", "note:", "note to self"),
    *("make a note", "take a note", "don't forget that", "keep in mind that"),
    *(
        "请记住",
        "帮我记住",
        "帮我记一下",
        "记住",
        "记一下",
        "记下来",
        "备注",
        "别忘了",
        "請記住",
        "記住",
    ),
)
_NOTE = re.compile(
    rf"\s*(?:{'|'.join(map(re.escape, _OPENINGS))})(?:[\s:：,，。.;；—-]+|\b|(?=[^\x00-\x7f]))",
    re.IGNORECASE,
)


def noted_text(text: str) -> str | None:
    """Return what a message asks to remember, in its own words; None if it does not ask."""
    match = _NOTE.match(text)
    if match is None or text.rstrip().endswith(("?", "？")):
        return None
    note = text[match.end() :].strip()
    return note if len(re.findall(r"\w", note)) > 1 else None  # 记住了 is an answer
