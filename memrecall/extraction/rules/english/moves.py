"""Changes of work in English: whoever has a new job and is "at Roche" works there."""

import re

from memrecall.extraction.rules.english.table import NAME

_NEW_JOB = re.compile(
    r"\b(?:(?:changed|switched|moved|change|switch) (?:jobs?|companies|employers)"
    r"|(?:got|found|landed|started|have|took) (?:an?|my) new (?:job|position|role)"
    r"|(?:quit|left|resigned from) my (?:old |last )?(?:job|position|company))\b",
    re.IGNORECASE,
)
_NO_FIRM = (
    r"(?!(?:Gate|Terminal|Platform|Mom|Mum|Dad|Grandma|Home)\b)"
    r"(?![^,]*\b(?:Airport|Station|Hotel|Park|Beach|Street|Mall|Hospital|University|School|Cafe)\b)"
)
_NOW_AT = re.compile(rf"\bI am now (?:at|with) {_NO_FIRM}(?={NAME}(?:$|,| as\b| in [A-Z]))")
_AT = re.compile(
    rf"\bI am (?:now |currently )?(?:at|with) {_NO_FIRM}(?={NAME}(?: now)?(?:$|,| as\b| in [A-Z]))"
)


def place_work(text: str, before: str) -> str:
    """ "I am now at Meta" as "I now work at Meta"; behind a change of jobs without "now" too."""
    if _NEW_JOB.search(f"{before}. {text}"):
        return _AT.sub("I work at ", text)
    return _NOW_AT.sub("I now work at ", text)
