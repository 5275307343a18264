"""What the assistant is told to do from now on, and what it is told to forget or to remember."""

import re

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
_LASTING = re.compile(
    r"^(?:please )?(?P<when>from now on|going forward|in (?:the )?future|from today(?: "
    r"on)?|henceforth"
    r"|for (?:all )?(?:future|every|the rest)[^,]*|as a (?:general )?rule|by default),? "
    r"?(?:please )?(?:I (?:want|would like|need) you to )?(?P<what>.+)"
    r"|^(?:please |make sure (?:to|you|that you) |you (?:should|must) |I (?:want|need"
    r"|would like|expect|prefer|ask) (?:for )?you to "
    r"|(?:could|can|would) you (?:please )?|remember to )*(?P<always>(?:always|never|do "
    r"not ever) .+?)\??$"
    r"|^(?:please )?(?P<stop>(?:do not|stop|avoid|no need to|no more) (?:ever )?(?:us(?:e"
    r"|ing)|add(?:ing)?|includ(?:e|ing)|writ(?:e|ing)"
    rf"|send(?:ing)?|giv(?:e|ing)(?: me)?|put(?:ting)?|end(?:ing)? (?:with|your)"
    rf"|start(?:ing)? (?:with|your))? ?(?:any |so many |me )?(?:[\w-]+ )?{_STYLE}\b.*)"
    rf"|^(?:please )?(?P<no>no {_STYLE}\b.*)"
    r"|^(?:please )?(?P<again>(?:do not|stop) .+ (?:any ?more|again|ever again|in the future)$)"
    r"|^(?:please |you can |you may |just |feel free to )*(?P<call>(?:call|address) me "
    r"(?:as |by )?.+)"
    rf"|^(?:please )?(?P<tongue>(?:only |just )?(?:answer|reply|respond|speak|talk"
    rf"|communicate|write back|chat)(?: to me| with me)?(?: only)? in (?:simple |plain "
    rf")?{_LANGUAGES}\b.*)"
    rf"|^(?:please )?(?P<keep>(?:keep|make) (?:(?:your|the|all|my) )?{_ANSWER} .+)"
    r"|^(?:please )?(?P<units>use (?:the )?(?:metric|imperial|celsius|fahrenheit|24[- "
    r"]hour|12[- ]hour|british|american|kilomet\w+|kg|miles|formal|informal|simple|plain"
    r"|tabs|spaces)\b.*)"
    r"|^(?:I (?:want|need|would like|expect) you to (?P<want>(?:be|act|speak|talk|answer"
    r"|reply|respond|explain|ask|give|keep|check|use|write|treat|remember|address|call) "
    r".+))"
    r"|^(?P<whenever>(?:whenever|every time|each time|when(?:ever)? I (?:ask|say|write"
    r"|send|share|paste|mention|give))\b.+)"
    r"|^(?:please )?(?P<remind>remind me (?:every|each|to|about|of|that) .+)",
    re.IGNORECASE,
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
    match = _LASTING.match(text)
    if match is None or (_ONCE.search(text) and not match["when"]):
        return None
    kind, what = next(
        (name, found) for name, found in match.groupdict().items() if found and name != "when"
    )
    if kind == "what" and re.match(r"(?:I|we|my|our|he|she|it|they|the)\b", what):
        return None
    field = next((name for name, pattern in _FIELDS if pattern.search(what)), None)
    return what.strip(), kind, field


def phrase_order(what: str, kind: str) -> str:
    """The instruction as what the assistant shall do: "not use emojis"."""
    what = re.sub(r"\byou\b", "it", re.sub(r"\byour\b", "its", what))
    text = re.sub(r"^do not (?:ever )?", "not ", what, flags=re.IGNORECASE)
    text = re.sub(r"^stop (\w+ing)\b", r"stop \1", text, flags=re.IGNORECASE)
    if re.match(r"no ", text, re.IGNORECASE):
        text = "use " + text
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
