"""`extract_search_keywords`: without a model, content words and times."""

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
