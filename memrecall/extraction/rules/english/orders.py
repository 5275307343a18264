"""What the assistant is told to do from now on, and what it is told to forget or to remember."""

import re

from memrecall.extraction.rules.english.verbs import third_person

_LANGUAGES = (
    r"(?:English|Chinese|Mandarin|Cantonese|German|French|Spanish|Italian|Japanese|Korean"
    r"|Portuguese|Russian"
    r"|Arabic|Hindi|Dutch|Swedish|Polish|Turkish|Danish|Norwegian|Finnish|Greek|Czech"
    r"|Ukrainian|Vietnamese|Thai)"
)
_ANSWER = r"(?:answers?|repl(?:y|ies)|responses?|messages?|explanations?|summar(?:y|ies)|emails?)"
_STYLE = (
    r"(?:emojis?|emoticons?|bullet(?: points?|s)|markdown|tables?|jargon|exclamation\w*"
    r"|headings?|headers?"
    r"|pleasantries|filler|apolog\w+|small talk|slang|lists?|abbreviations|code comments"
    r"|comments|disclaimers?"
    r"|caveats?|italics|bold|latex|em[- ]dashes|flattery|compliments|metaphors|first "
    r"names?|nicknames?)"
)
_PLEASE = r"(?:please )?"
# How an order that lasts is given; the group is what shall be done.
_ORDERS = tuple(
    (kind, re.compile(pattern, re.IGNORECASE))
    for kind, pattern in (
        (
            "later",
            r"(?:please )?(?P<what>(?!I\b|we\b|my\b|our\b|he\b|she\b)[a-z].+? (?:from now on"
            r"|going forward|in (?:the )?future)(?: please)?)$",
        ),
        (
            "when",
            r"(?:please )?(?:from now on|going forward|in (?:the )?future|from today(?: on)?"
            r"|henceforth|for (?:all )?(?:future|every|the rest)[^,]*|as a (?:general )?rule"
            r"|by default),? ?(?:please )?(?:I (?:want|would like|need) you to )?(?P<what>.+)",
        ),
        (
            "always",
            r"(?:please |make sure (?:to|you|that you) |you (?:should|must) |(?:could|can|would) "
            r"you"
            r" (?:please )?|I (?:want|need|would like|expect|prefer|ask) (?:for )?you to"
            r" |remember to )*(?P<what>(?:always (?!an?\b|the\b|good|nice|great|happy|fun|glad|here"
            r"|been|welcome|had|wanted|loved|thought|learn|worth)|never (?!touch|been|had"
            r"|ate|eat|drink|drank|liked|again|mind|knew|heard|seen|tried|felt"
            r"|happened)|do not ever) ?.+?)\??$",
        ),
        (
            "stop",
            rf"{_PLEASE}(?P<what>(?:do not|stop|avoid|no need to|no more) (?:ever )?(?:us(?:e|ing)"
            r"|add(?:ing)?|includ(?:e|ing)|writ(?:e|ing)|send(?:ing)?|giv(?:e|ing)(?: me)?"
            r"|put(?:ting)?|end(?:ing)? (?:with|your)|start(?:ing)? (?:with|your))? ?(?:any "
            rf"|so many |me )?(?:[\w-]+ )?{_STYLE}\b.*)",
        ),
        ("no", rf"{_PLEASE}(?P<what>no {_STYLE}\b.*)"),
        (
            "again",
            rf"{_PLEASE}(?P<what>(?:do not|stop) .+ (?:any ?more|again|ever again|in the future))$",
        ),
        (
            "cease",
            r"(?:can|could|would|will) you (?:please )?(?P<what>(?:stop \w+ing|not) .*(?:all the "
            r"time"
            r"|every time|so much|always|constantly|in every .+|again|any ?more))\??$",
        ),
        (
            "only",
            r"(?P<what>(?:just|only) (?:give|show|send|tell) me (?:the |an? )?\w+,? (?:no|without"
            r"|do not) .+)",
        ),
        (
            "call",
            r"(?:please |you can |you may |just |feel free to )*"
            r"(?P<what>(?:call|address) me (?:as |by )?.+)",
        ),
        (
            "tongue",
            rf"{_PLEASE}(?P<what>(?:only |just )?(?:answer|reply|respond|speak|talk|communicate"
            r"|write back|chat)(?: to me| with me)?(?: only)? in (?:simple |plain )?"
            rf"{_LANGUAGES}\b.*)",
        ),
        ("keep", rf"{_PLEASE}(?P<what>(?:keep|make) (?:(?:your|the|all|my) )?{_ANSWER} .+)"),
        (
            "units",
            rf"{_PLEASE}(?P<what>use (?:the )?(?:metric|imperial|celsius|fahrenheit|24[- ]hour"
            r"|12[- ]hour|british|american|kilomet\w+|kg|miles|formal|informal|simple|plain|tabs"
            r"|spaces)\b.*)",
        ),
        (
            "want",
            r"I (?:want|need|would like|expect) you to (?P<what>(?:be|act|speak|talk|answer|reply"
            r"|respond|explain|ask|give|keep|check|use|write|treat|remember|address|call) .+)",
        ),
        (
            "wish",
            r"I (?:would )?(?:prefer|like|appreciate|love) it (?:if|when) (?P<what>you .+)",
        ),
        (
            "whenever",
            r"(?P<what>(?:whenever|every time|each time|when(?:ever)? you (?:give|show|write"
            r"|send|answer|explain|reply)|when(?:ever)? I (?:ask|say|write|send|share"
            r"|paste|mention|give))\b[^,]+, .+)",
        ),
        (
            "assume",
            rf"{_PLEASE}(?P<what>(?:assume|treat me like|treat me as|pretend) (?:that )?(?:I am "
            r")?(?:an? |the )?(?:complete |total |absolute )?(?:beginner|novice|expert|layperson"
            r"|layman|five[- ]year[- ]old|child|newbie|professional|developer|programmer)\b.*)",
        ),
        (
            "spare",
            rf"{_PLEASE}(?P<what>do not (?:schedule|book|suggest|recommend|offer|mention|ask me"
            r"|contact me|email me|text me|call me) (?!it\b|that\b|this\b).+)",
        ),
        ("remind", rf"{_PLEASE}(?P<what>remind me (?:every|each|to|about|of|that) .+)"),
    )
)
# A wish for one answer only is no rule for all.
_ONCE = re.compile(
    r"\b(?:this time|just (?:this )?once|for now|here|in this (?:case|message|reply|email"
    r"|text)|right now|"
    r"this (?:function|code|file|line|paragraph|sentence|email|text))\b",
    re.IGNORECASE,
)
_FIELDS = (
    (
        "reply_language",
        re.compile(
            rf"\bin (?:simple |plain )?{_LANGUAGES}\b|\b(?:speak|use|write) {_LANGUAGES}\b",
            re.IGNORECASE,
        ),
    ),
    ("nickname", re.compile(r"\b(?:call|address) me\b", re.IGNORECASE)),
    (
        "reply_length",
        re.compile(
            r"\b(?:short|brief|concise|long|detailed|sentences?|words|length|verbose|terse)\b",
            re.IGNORECASE,
        ),
    ),
    (
        "units",
        re.compile(
            r"\b(?:metric|imperial|celsius|fahrenheit|24[- ]hour|12[- ]hour|kilomet\w+|miles)\b",
            re.IGNORECASE,
        ),
    ),
)
_LET_US = re.compile(
    r"^(?:ok(?:ay)?,? |so,? |then )?let us (?P<what>(?:go with|use|stick with|stick to"
    r"|switch to|pick|choose|call it|name it|keep|settle on|do"
    r" (?:the|option|plan)) (?!it\b|this\b|that\b)\S.*)",
    re.IGNORECASE,
)
_FORGET = re.compile(
    r"^(?:please |can you |could you |you can |now )*(?:forget|delete|remove|erase"
    r"|disregard|ignore|do not remember|stop remembering)"
    r" (?:about |the fact |what i (?:said|told you) about |what I (?:said|told you) about "
    r"|the memory |(?:from |in )?your memory )*(?:that )?(?P<what>.+)",
    re.IGNORECASE,
)
_NOTHING_TOLD = re.compile(
    r"^(?:it|that|this|everything|all|about it|what i (?:just )?said)\W*$", re.IGNORECASE
)
_REMEMBER = re.compile(
    r"^(?:please |can you |could you |also |and )*(?:remember|note|keep in mind|make a "
    r"note|take note|do not forget(?= that)"
    r"|save|write down|memori[sz]e|for future reference|bear in mind)(?: this| down)?(?:,"
    r"|:| that)? ?(?:that |:\s*)?(?P<what>.+)",
    re.IGNORECASE,
)
_TO_DO = re.compile(
    r"^(?:to|your|you|when|how|the time|me|you|it|this|that|our last|last)\b", re.IGNORECASE
)


def read_order(text: str) -> tuple[str, str, str | None] | None:
    """A lasting instruction: its verb phrase, how it was said, and its slot; None if it is none."""
    found = ((kind, pattern.match(text)) for kind, pattern in _ORDERS)
    kind, match = next(((kind, match) for kind, match in found if match), ("", None))
    if match is None:
        return None
    what = re.sub(r",? please$", "", match["what"].strip(), flags=re.IGNORECASE)
    if kind != "when" and _ONCE.search(text):
        return None
    if kind == "when" and re.match(r"(?:I|we|my|our|he|she|it|they|the)\b", what):
        return None
    field = next((name for name, pattern in _FIELDS if pattern.search(what)), None)
    return what, kind, field


def phrase_order(what: str, kind: str) -> str:
    """The instruction as what the assistant shall do: "not use emojis"."""
    if kind == "wish":
        what = re.sub(r"^you\b", "the assistant", what)
    what = re.sub(
        r"^(when(?:ever)?) you (\w+)",
        lambda match: f"{match[1]} it {third_person(match[2])}",
        what,
        flags=re.IGNORECASE,
    )
    what = re.sub(r"\byou\b", "it", re.sub(r"\byour\b", "its", what))
    text = re.sub(r"^do not (?:ever )?", "not ", what, flags=re.IGNORECASE)
    text = re.sub(r"^stop (\w+ing)\b", r"stop \1", text, flags=re.IGNORECASE)
    if re.match(r"no ", text, re.IGNORECASE):
        text = "use " + text[0].lower() + text[1:]
    if kind == "whenever":
        return f"follow this: {text}"
    return text[:1].lower() + text[1:] if not re.match(r"[A-Z]{2}|I\b", text) else text


def read_choice(text: str) -> str | None:
    """What "let us …" settles."""
    match = _LET_US.match(text)
    return match["what"] if match else None


def read_forget(text: str) -> str | None:
    """What the assistant is told to forget, if it is said what."""
    match = _FORGET.match(text)
    if match is None or _NOTHING_TOLD.match(match["what"]):
        return None
    return match["what"].strip()


def read_remember(text: str) -> str | None:
    """What the assistant is told to remember; what is to be done is none."""
    match = _REMEMBER.match(text)
    if match is None or _TO_DO.match(match["what"]):
        return None
    return match["what"].strip(" ,:")
