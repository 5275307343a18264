"""`search_memories`: search of memories, and of messages as evidence; and its keywords."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from zoneinfo import ZoneInfo

from memrecall.agent.conversation import Conversation
from memrecall.agent.result import QueryTried
from memrecall.agent.state import MAX_CONSECUTIVE_SEARCHES, RecallState
from memrecall.agent.tools.models import (
    ExtractKeywordsInput,
    ExtractKeywordsOutput,
    KeywordExtractionItem,
    MemorySearchResultItem,
    SearchMemoriesInput,
    SearchMemoriesOutput,
    ToolErrorCode,
)
from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.search import EngineRequest, Hit, SearchPage, all_terms
from memrecall.search.request import SMALL_PART
from memrecall.search.results import describe_origin, mark_outdated
from memrecall.store import Store
from memrecall.text.keywords import extract_keywords
from memrecall.text.language import word_classes
from memrecall.text.snippets import Highlighter, mark_passages
from memrecall.text.times import find_times
from memrecall.text_length import truncate_text
from memrecall.types import EARLIEST, Message, Role, read_iso_time
from memrecall.workers import in_process

MAX_QUERY = 1_000

# Metadata of a stored answer: what wrote it, and the keys of the memories it is based on.
ANSWERED_BY, BY_RULES = "answered_by", "rules"
RECALLED = "recalled"
_PREVIEW = 200
# Each round asks for twice as many results, so that a daily question is soon left behind.
_REPETITIONS = 20  # more hits than requested, of which some may repeat the request
_MAX_LIMIT = 200
_MAX_SOURCES = 10
_ADDRESSED = re.compile(r"(?:@\S+\s+)+")
_MAX_ENTRIES = 3  # of the knowledge base, in addition to memories and messages
_TYPES = ("entity", "action", "concept", "time")
_TIME_WEIGHT = 0.6
_CONTEXT_WEIGHT = 0.5
_ENTITY_MARKS = re.compile(r"[A-Z0-9]|[./_@\\-]")
_ENTITY_TAGS = ("nr", "ns", "nt", "nz")  # people, places, organisations, other proper nouns


async def search_memories(
    state: RecallState, arguments: SearchMemoriesInput
) -> SearchMemoriesOutput:
    """Search the scope; refuse repeated searches and say what is possible instead."""
    refusal = _refuse(state, arguments)
    if refusal is not None:
        state.consecutive_searches += 1
        return refusal
    request = _make_request(state, arguments)
    page, repetitions = await _search(state, request)
    relaxed: list[str] = []
    if not page.results and (request.keywords or request.memory_types):
        # The filters on contents become words of the query.
        relaxed = [*request.keywords, *request.memory_types]
        words = " ".join(value.replace("_", " ") for value in relaxed)
        query = f"{request.query} {words}"[:MAX_QUERY]
        request = replace(request, query=query, keywords=(), memory_types=())
        page, repetitions = await _search(state, request)
    if not (request.is_of_part and page.searched <= SMALL_PART):
        page = replace(page, results=page.results[: arguments.limit])
    knowledge = await _find_knowledge(state, arguments)
    contents = [hit.content for hit in (*page.results, *knowledge)]
    length = sum(map(len, (arguments.query, *contents)))
    passages = await in_process(length, find_passages, arguments.query, contents)
    return _answer(state, arguments, request, page, relaxed, repetitions, knowledge, passages)


async def _find_knowledge(state: RecallState, arguments: SearchMemoriesInput) -> list[Hit]:
    """Return relevant entries of the agent's knowledge base, which nobody said at any time."""
    types, times = arguments.memory_types, (arguments.since, arguments.until)
    is_excluded = bool(types) and "knowledge" not in (types or ())
    if is_excluded or any(times) or arguments.time_range_days or arguments.role or state.period:
        return []
    if not await state.has_knowledge():
        return []
    hits = await state.knowledge.find(arguments.query[:MAX_QUERY], _MAX_ENTRIES)
    return [hit for hit in hits if state.is_visible(hit.ts)]


def _refuse(state: RecallState, arguments: SearchMemoriesInput) -> SearchMemoriesOutput | None:
    if state.consecutive_searches >= MAX_CONSECUTIVE_SEARCHES:
        phrases = ["left_detail"] if state.hits else []
        phrases += ["left_expand"] if state.window.can_grow else []
        options = "; ".join(state.say(name) for name in [*phrases, "left_handoff"])
        count = state.consecutive_searches
        message = state.say("three_in_a_row", count=count, left=options)
        return SearchMemoriesOutput(
            success=False, total_found=0, error=ToolErrorCode.TOO_MANY_SEARCHES, message=message
        )
    fields = arguments.model_dump(exclude_none=True)
    for search in state.searches:
        if search.arguments == fields:
            found = search.total_found
            message = state.say("repeated", call=search.call, found=found)
            return SearchMemoriesOutput(
                success=False, total_found=found, error=ToolErrorCode.REPEATED, message=message
            )
    return None


def _make_request(state: RecallState, arguments: SearchMemoriesInput) -> EngineRequest:
    since = _parse_moment(state, "since", arguments.since)
    until = _parse_moment(state, "until", arguments.until)
    if arguments.time_range_days is not None:
        days = min(arguments.time_range_days, (state.now - EARLIEST).days)
        start = state.now - timedelta(days=days)
        since = start if since is None else max(since, start)
    if state.end_time is not None:
        until = state.end_time if until is None else min(until, state.end_time)
        since = since and min(since, until)
    messages = state.conversation.messages
    return EngineRequest(
        query=arguments.query[:MAX_QUERY],
        mode=arguments.search_mode,
        # The caller's own messages are removed from the results: ask for as many more.
        limit=min(max(arguments.limit, SMALL_PART) + len(messages), _MAX_LIMIT),
        threshold=arguments.min_relevance_score,
        since=since,
        until=until,
        role=Role(arguments.role) if arguments.role else None,
        memory_types=tuple(arguments.memory_types or ()),
        keywords=tuple(arguments.keywords or ()),
        exclude=frozenset(each.message_id for each in messages if each.message_id is not None),
        now=state.now,
        time_zone=state.time_zone,
        period=state.period,
    )


def _parse_moment(state: RecallState, name: str, value: str | None) -> datetime | None:
    """Parse a date or time that a model wrote; without an offset it is the user's time."""
    if value is None:
        return None
    try:
        moment = read_iso_time(value)
        return (moment if moment.tzinfo else moment.replace(tzinfo=state.zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"{name} {value!r} is not a date or time", hint="Write it like 2026-01-26"
        ) from None


async def _search(state: RecallState, request: EngineRequest) -> tuple[SearchPage, int]:
    """Return a page without repetitions of the request, and how many there were.

    The rows are ranked as if the repetitions were not stored: these are always the best matches,
    and would leave no probability to what they ask for.
    """
    wide = replace(request, limit=min(request.limit + _REPETITIONS, _MAX_LIMIT))
    found = await _cached_page(state, wide)
    asked = await _find_asked(state, found.results)
    if asked:
        found = await _cached_page(state, replace(wide, exclude=wide.exclude | asked))
        asked |= await _find_asked(state, found.results)
    page = await mark_outdated(state.library.store, state.scope, found)
    told = [hit for hit in page.results if hit.key not in asked]
    hits = await add_sources(state.library.store, state.scope, request, told[: request.limit])
    return replace(page, results=tuple(hits)), len(asked)


async def _find_asked(state: RecallState, hits: Sequence[Hit]) -> set[str]:
    """Return the keys of hits that are no evidence: repetitions, and empty answers to them."""
    repetitions = await _find_repetitions(state.conversation, hits)
    # Answers to the same request for which nothing was recalled: "I do not know which city Kate
    # lives in" is no evidence once she has told it.
    empty = [
        hit.key
        for hit in hits
        if hit.kind == "message" and hit.role == Role.ASSISTANT.value
        if hit.metadata.get(RECALLED) == []
    ]
    if not (empty and repetitions):
        return repetitions
    answers = await state.library.store.timeline(state.scope).get_many(empty)
    return repetitions | {
        each.message_id for each in answers if each.parent_message_id in repetitions
    }


async def _cached_page(state: RecallState, request: EngineRequest) -> SearchPage:
    """Return a page that may be a minute old; the cache key holds all that could change it."""
    library, scope = state.library, state.scope
    version = await library.read_version(scope, request)
    entered = await library.enter(scope, request)
    minute = state.now.replace(second=0, microsecond=0)
    key = (scope, version, entered, replace(request, now=minute))
    page = await state.caches.searches.get(
        key, lambda: library.search(scope, request, version, entered)
    )
    assert isinstance(page, SearchPage)  # noqa: S101 -- the cache holds nothing else
    return page


async def _find_repetitions(conversation: Conversation, hits: Sequence[Hit]) -> set[str]:
    """Return the keys of hits that only repeat the request, and so are no evidence.

    The caller's messages do, those with the same words, and what was quoted without a model: it is
    stored itself.
    """
    if not conversation.messages:
        return set()
    request = conversation.request.text
    known = {
        hit.key
        for hit in hits
        if conversation.has_message(hit.key, hit.content)
        or (hit.kind == "message" and hit.metadata.get(ANSWERED_BY) == BY_RULES)
    }
    others = [hit for hit in hits if hit.kind == "message" and hit.key not in known]
    texts = [hit.content for hit in others]
    length = sum(map(len, (request, *texts)))
    found = await in_process(length, compare_texts, request, texts)
    return known | {hit.key for hit, is_same in zip(others, found, strict=True) if is_same}


def compare_texts(request: str, texts: Sequence[str]) -> list[bool]:
    """Return for each text whether it has the words of a request and no others.

    Whom they address does not count: in a group, "@Travel where does Kate live?" asks the same.
    """
    terms = all_terms(_unaddressed(request)).keys()

    def is_same(text: str) -> bool:
        # Most texts differ in their first word, which is found sooner than all of them.
        first = "".join(text.split(maxsplit=1)[:1])
        return all_terms(first).keys() <= terms and all_terms(text).keys() == terms

    return [is_same(_unaddressed(text).rstrip()) for text in texts]


def _unaddressed(text: str) -> str:
    return text[match.end() :] if (match := _ADDRESSED.match(text)) else text


def source_keys(role: str | None, metadata: Mapping[str, object]) -> list[str]:
    """Return the keys that an assistant's stored answer is based on."""
    keys = metadata.get(RECALLED)
    if role != Role.ASSISTANT.value or not isinstance(keys, list):
        return []
    return [key for key in keys[:_MAX_SOURCES] if isinstance(key, str)]


async def add_sources(
    store: Store, scope: Scope, request: EngineRequest, hits: Sequence[Hit]
) -> list[Hit]:
    """Return the hits with the sources of each answer before it, and without equal answers."""
    by_key = {hit.key: hit for hit in hits}
    keys = {key for hit in hits for key in source_keys(hit.role, hit.metadata)}
    missing = sorted(keys - by_key.keys() - request.exclude)
    messages = await store.timeline(scope).get_many(missing) if missing else []
    sources = {message.message_id: message for message in messages if _passes(request, message)}
    ordered: dict[str, Hit] = {}
    answers: set[str] = set()
    for hit in hits:
        for key in source_keys(hit.role, hit.metadata):
            if key in sources:
                message = sources[key]
                source = replace(  # a hit with the answer's score
                    hit,
                    key=key,
                    ts=message.ts,
                    role=message.role.value,
                    speaker=message.speaker,
                    content=message.content,
                    session_id=message.session_id,
                    metadata=message.metadata,
                )
                ordered.setdefault(key, source)
            elif key in by_key and by_key[key].role != Role.ASSISTANT.value:
                ordered.setdefault(key, by_key[key])
        if hit.role == Role.ASSISTANT.value:
            if hit.content in answers:
                continue
            answers.add(hit.content)
        ordered.setdefault(hit.key, hit)
    return list(ordered.values())


def _passes(request: EngineRequest, message: Message) -> bool:
    """Return True if the filters of a search accept a message that it did not return."""
    if request.keywords or (request.memory_types and "message" not in request.memory_types):
        return False
    if request.role is not None and message.role is not request.role:
        return False
    since, until, ts = request.since, request.until, message.ts
    is_inside = request.period is None or request.period.covers(ts)
    return is_inside and (since is None or ts >= since) and (until is None or ts < until)


def _answer(
    state: RecallState,
    arguments: SearchMemoriesInput,
    request: EngineRequest,
    page: SearchPage,
    relaxed: list[str],
    repetitions: int,
    knowledge: list[Hit],
    passages: list[str | None],
) -> SearchMemoriesOutput:
    hits = [*page.results, *knowledge]
    new_keys = state.add_hits(hits)
    state.consecutive_searches += 1  # only now: a failed search that is retried counts once
    state.withheld = max(state.withheld, page.withheld)
    state.nearest = page.nearest
    if page.degraded is not None:
        state.degraded[page.message] = None
    total_found = page.total_found + len(knowledge)
    search = QueryTried(
        arguments=arguments.model_dump(exclude_none=True),
        total_found=total_found,
        returned=len(hits),
        new_keys=new_keys,
        keys=[hit.key for hit in hits],
        call=state.calls,
    )
    state.searches.append(search)
    notes = [page.explanation if hits else page.describe(withheld=False)]
    if relaxed:
        notes.append(state.say("relaxed", filters=", ".join(relaxed)))
    notes += [state.say("nothing_new")] if hits and not new_keys else []
    notes += [state.say("already_given", count=repetitions)] if repetitions else []
    notes += [state.say("withheld", count=page.withheld)] if page.withheld else []
    notes += [state.say("from_knowledge")] if knowledge else []
    if len(arguments.query) > MAX_QUERY:
        notes.append(state.say("query_cut", size=MAX_QUERY))
    return SearchMemoriesOutput(
        success=True,
        answered=page.answered,
        total_found=total_found,
        results=list(map(partial(_result_item, state), hits, passages)),
        search_query_expanded=request.query if relaxed else None,
        message=" ".join(filter(None, notes)) or None,
        withheld=page.withheld,
        relaxed=relaxed,
        searched=page.searched,
        below_threshold=page.below_threshold,
        since=request.since and state.format_local(request.since),
        until=request.until and state.format_local(request.until),
    )


def _result_item(state: RecallState, hit: Hit, passage: str | None) -> MemorySearchResultItem:
    return MemorySearchResultItem(
        memory_key=hit.key,
        summary=hit.summary,
        content_preview=preview_content(hit.content),
        memory_type=hit.memory_type,
        relevance_score=round(hit.score, 2),
        below_threshold=hit.below_threshold,
        created_at=state.format_local(hit.ts),
        keywords=list(hit.keywords),
        kind=hit.kind,
        speaker=hit.speaker,
        role=hit.role,
        passage=passage,
        valid_to=hit.valid_to and state.format_local(hit.valid_to),
        stated_by=list(hit.sources),
        probability=hit.probability,
        made_from=source_keys(hit.role, hit.metadata),
        claimed_by=hit.claimed_by,
        conflicts_with=list(hit.conflicts_with),
        doubts=list(hit.doubts),
        space=hit.space and describe_origin(hit.space, hit.author, hit.ts),
        session_id=hit.session_id,
        why=hit.why.as_dict(),
    )


def preview_content(content: str) -> str:
    """Return the first 200 characters of a content, as tools return them to a model."""
    return truncate_text(content, _PREVIEW, "...")


def find_passages(query: str, contents: Sequence[str]) -> list[str | None]:
    """Return the part of each long content that matches the query, unless it is the beginning."""
    highlighter = Highlighter([query])

    def find(content: str) -> str | None:
        if len(content) <= _PREVIEW:
            return None
        text, marks = content[:100_000], {"before": "", "after": ""}
        found = mark_passages(text, highlighter, length=_PREVIEW, limit=1, **marks).snippets
        if not found or content.startswith(found[0].rstrip("…")[:_PREVIEW]):
            return None
        return found[0]

    return list(map(find, contents))


async def extract_search_keywords(
    state: RecallState, arguments: ExtractKeywordsInput
) -> ExtractKeywordsOutput:
    """Extract keywords with the model if there is one, else from the text."""
    problem = None
    if state.keyword_model is not None:
        reply = await state.keyword_model(arguments)
        if reply.value is not None:
            items = [
                item.model_copy(update={"type": item.type if item.type in _TYPES else "concept"})
                for item in reply.value.keywords[: arguments.max_keywords]
            ]
            return ExtractKeywordsOutput(
                success=True, keywords=items, expanded_query=reply.value.expanded_query
            )
        problem = reply.problem
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
