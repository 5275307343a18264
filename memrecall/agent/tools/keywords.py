"""`extract_search_keywords`, and the query expansion of `search_memories`.

Without a model they give content words, times and other spellings.
"""

import re
from datetime import datetime
from zoneinfo import ZoneInfo

from memrecall.agent.state import RecallState
from memrecall.agent.tools.models import (
    ExtractKeywordsInput,
    ExtractKeywordsOutput,
    KeywordExtractionItem,
)
from memrecall.text.keywords import extract_keywords
from memrecall.text.language import language_of
from memrecall.text.times import find_times
from memrecall.text.words import word_classes

_TYPES = ("entity", "action", "concept", "time")


async def extract_search_keywords(
    state: RecallState, arguments: ExtractKeywordsInput
) -> ExtractKeywordsOutput:
    """Extract keywords with the model if there is one, else from the text."""
    if state.keyword_model is None:
        return _extract_from_text(state, arguments, None)
    reply = await state.keyword_model(arguments)
    if reply.value is None:
        return _extract_from_text(state, arguments, reply.problem)
    items = [
        item.model_copy(update={"type": item.type if item.type in _TYPES else "concept"})
        for item in reply.value.keywords[: arguments.max_keywords]
    ]
    return ExtractKeywordsOutput(
        success=True, keywords=items, expanded_query=reply.value.expanded_query
    )


def _extract_from_text(
    state: RecallState, arguments: ExtractKeywordsInput, problem: str | None
) -> ExtractKeywordsOutput:
    words = extract_typed_keywords(
        arguments.query, arguments.context, arguments.max_keywords, state.now, state.zone
    )
    message = None
    if problem is not None:
        message = state.say("keywords_without_model", problem=problem)
    elif not words:
        message = state.say("no_keywords")
    return ExtractKeywordsOutput(
        success=True,
        keywords=words,
        expanded_query=" ".join(word.keyword for word in words) or None,
        message=message,
    )


async def expand_query(state: RecallState, query: str) -> tuple[str, ...]:
    """Return optional words for a search, cached for five minutes."""

    async def expand() -> tuple[str, ...]:
        return expand_terms(query)

    return await state.caches.keywords.get((state.language, query), expand)


_TIME_WEIGHT = 0.6
_CONTEXT_WEIGHT = 0.5

_ENTITY_MARKS = re.compile(r"[A-Z0-9]|[./_@\\-]")
_ENTITY_TAGS = ("nr", "ns", "nt", "nz")  # people, places, organisations, other proper nouns


def extract_typed_keywords(
    query: str, context: str | None, limit: int, now: datetime, zone: ZoneInfo
) -> list[KeywordExtractionItem]:
    """Return the keywords of a query and its context, highest weight first."""
    times = [span.text for span in find_times(query, now, zone)]
    keywords = [
        KeywordExtractionItem(keyword=time, weight=_TIME_WEIGHT, type="time") for time in times
    ]
    for text, factor in ((query, 1.0), (context or "", _CONTEXT_WEIGHT)):
        for time in times:
            text = text.replace(time, " ")
        keywords += [
            KeywordExtractionItem(
                keyword=k.word, weight=round(k.weight * factor, 2), type=_keyword_type(k.word)
            )
            for k in extract_keywords(text, limit)
        ]
    unique = {item.keyword.casefold(): item for item in reversed(keywords)}
    return sorted(unique.values(), key=lambda item: (-item.weight, item.keyword))[:limit]


def _keyword_type(word: str) -> str:
    """Return the type of a word: by its spelling, or by the segmenter's tags for Chinese."""
    if word.isascii():
        return "entity" if _ENTITY_MARKS.search(word) else "concept"
    classes = word_classes(word)
    if classes and all(name.startswith(_ENTITY_TAGS) for name in classes):
        return "entity"
    return "action" if classes == ["v"] else "concept"


_IDENTIFIER_BREAK = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-./]+")
_HYPHENATED = re.compile(r"[A-Za-z][a-z]*(?:-[a-z]+)+")
_NUMBER_TABLE = """
0 zero 零,1 one 一,2 two 二 两,3 three 三,4 four 四,5 five 五,6 six 六,7 seven 七,8 eight 八
9 nine 九,10 ten 十
"""
_NUMBER_SPELLINGS = [tuple(row.split()) for row in re.split("[,\n]", _NUMBER_TABLE.strip())]
_NUMBER = re.compile(
    rf"\b(\d{{1,2}}|{'|'.join(spellings[1] for spellings in _NUMBER_SPELLINGS)})\b"
    r"|([零一二两三四五六七八九十])(?=[个次天周月年岁本位点号件只条])",
    re.IGNORECASE,
)


def expand_terms(query: str) -> tuple[str, ...]:
    """Return the parts of a query's identifiers and other spellings of its numbers."""
    terms: dict[str, None] = {}
    for word in re.findall(r"[A-Za-z0-9_\-./]{4,}", query):
        if _HYPHENATED.fullmatch(word):  # "hand-drip" is already searched by its parts
            continue
        parts = [part for part in _IDENTIFIER_BREAK.split(word) if len(part) > 2]
        terms.update(dict.fromkeys(parts if len(parts) > 1 else ()))
    has_chinese = language_of(query) == "zh"
    for number in (match.group().lower() for match in _NUMBER.finditer(query)):
        spellings = next((row for row in _NUMBER_SPELLINGS if number in row), ())
        others = (*spellings[:1], *spellings[2:]) if has_chinese else spellings[:2]
        terms.update(dict.fromkeys(other for other in others if other != number))
    return tuple(terms)
