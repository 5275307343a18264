"""`search_memories`: memories, and messages as evidence."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import UTC, datetime, timedelta

from memrecall.agent.conversation import Conversation
from memrecall.agent.phrases import say
from memrecall.agent.state import SEARCHES_IN_A_ROW, RecallState, SearchNote
from memrecall.agent.tools.keywords import expand_query
from memrecall.agent.tools.models import (
    MemorySearchResultItem,
    SearchMemoriesInput,
    SearchMemoriesOutput,
)
from memrecall.errors import InvalidArgument
from memrecall.scope import Scope
from memrecall.search import Hit, SearchPage, SearchRequest, all_terms, query_terms
from memrecall.store import Store
from memrecall.text.snippets import snippets
from memrecall.text_length import truncate_text
from memrecall.types import Message, Role

# In the metadata of a stored answer: who made it, and the keys that it was made from.
ANSWERED_BY, RULES = "answered_by", "rules"
RECALLED = "recalled"
MOST_ROUNDS = 5  # each asks for twice as many, so that a question of every day is soon left behind
_LARGEST_LIMIT = 200
_MOST_SOURCES = 10


class Echoes:
    """Tells the echoes of one recall's request from evidence."""

    def __init__(self, conversation: Conversation) -> None:
        asked = conversation.request.text
        self._conversation = conversation
        self._words = all_terms(asked).keys()
        self._topics = query_terms(asked).keys()

    def among(self, hits: Iterable[Hit]) -> frozenset[str]:
        """The keys of those that are echoes."""
        return frozenset(hit.key for hit in hits if self.includes(hit))

    def includes(self, hit: Hit) -> bool:
        """Whether the caller has it already, it asks the same, or rules have quoted it together."""
        if self._conversation.has_message(hit.key, hit.content):
            return True
        if hit.kind != "message":
            return False
        if hit.metadata.get(ANSWERED_BY) == RULES:
            return True  # what they quote is stored itself
        said = hit.content.rstrip()
        if said.endswith(("?", "？")):
            return query_terms(said).keys() <= self._topics
        return all_terms(said).keys() == self._words


def made_from(role: str | None, metadata: Mapping[str, object]) -> list[str]:
    """The keys that an assistant's stored answer says it was made from."""
    keys = metadata.get(RECALLED)
    if role != Role.ASSISTANT.value or not isinstance(keys, list):
        return []
    return [key for key in keys[:_MOST_SOURCES] if isinstance(key, str)]


def without(request: SearchRequest, echoes: frozenset[str]) -> SearchRequest:
    """The same search as if they had never been said."""
    limit = min(request.limit * 2, _LARGEST_LIMIT)
    return replace(request, exclude=request.exclude | echoes, limit=limit)


async def with_sources(
    store: Store, scope: Scope, request: SearchRequest, hits: Sequence[Hit]
) -> list[Hit]:
    """The hits, each answer behind its sources, found or not; of equal answers the first."""
    found = {hit.key: hit for hit in hits}
    named = {key for hit in hits for key in made_from(hit.role, hit.metadata)}
    missing = sorted(named - found.keys() - request.exclude)
    messages = await store.timeline(scope).get_many(missing) if missing else []
    told = {message.message_id: message for message in messages if _passes(request, message)}
    ordered: dict[str, Hit] = {}
    answers: set[str] = set()
    for hit in hits:
        for key in made_from(hit.role, hit.metadata):
            if key in told:
                ordered.setdefault(key, _hit(told[key], hit))
            elif key in found and found[key].role != Role.ASSISTANT.value:
                ordered.setdefault(key, found[key])
        if hit.role == Role.ASSISTANT.value:
            if hit.content in answers:
                continue
            answers.add(hit.content)
        ordered.setdefault(hit.key, hit)
    return list(ordered.values())


def _passes(request: SearchRequest, message: Message) -> bool:
    """Whether the filters of the search let a message through that it did not find itself."""
    if request.keywords or (request.memory_types and "message" not in request.memory_types):
        return False
    if request.role is not None and message.role is not request.role:
        return False
    since, until = request.since, request.until
    return (since is None or message.ts >= since) and (until is None or message.ts < until)


def _hit(message: Message, answer: Hit) -> Hit:
    """A source of an answer: as likely as the answer is."""
    return replace(
        answer,
        key=message.message_id,
        ts=message.ts,
        role=message.role.value,
        speaker=message.speaker,
        content=message.content,
        session_id=message.session_id,
        metadata=message.metadata,
    )


LONGEST_QUERY = 1_000
PREVIEW = 200


async def search_memories(desk: RecallState, asked: SearchMemoriesInput) -> SearchMemoriesOutput:
    """Search within the desk's scope; refuse what leads nowhere, and say what is left to do."""
    refusal = _refuse(desk, asked)
    if refusal is not None:
        desk.notes.in_a_row += 1
        return refusal
    expansions: tuple[str, ...] = ()
    if desk.expand_queries and asked.search_mode != "keyword":
        expansions = await expand_query(desk, asked.query)
    request = _request(desk, asked, expansions)
    page, repeated = await _search(desk, request)
    relaxed: list[str] = []
    if not page.results and (request.keywords or request.memory_types):
        request, relaxed = _relax(request)
        page, repeated = await _search(desk, request)
    return _answer(desk, asked, request, page, relaxed, repeated)


def _refuse(desk: RecallState, asked: SearchMemoriesInput) -> SearchMemoriesOutput | None:
    notes = desk.notes
    if notes.in_a_row >= SEARCHES_IN_A_ROW:
        left = ["left_detail"] if notes.hits else []
        left += ["left_expand"] if desk.window.can_grow else []
        told = "; ".join(say(desk.language, phrase) for phrase in [*left, "left_handoff"])
        message = say(desk.language, "three_in_a_row", count=notes.in_a_row, left=told)
        return SearchMemoriesOutput(
            success=False, total_found=0, error="too_many_searches", message=message
        )
    arguments = asked.model_dump(exclude_none=True)
    for note in notes.searches:
        if note.arguments == arguments:
            message = say(desk.language, "repeated", call=note.call, found=note.total_found)
            return SearchMemoriesOutput(
                success=False, total_found=note.total_found, error="repeated", message=message
            )
    return None


def _request(
    desk: RecallState, asked: SearchMemoriesInput, expansions: tuple[str, ...]
) -> SearchRequest:
    since = _moment(desk, "since", asked.since)
    until = _moment(desk, "until", asked.until)
    if asked.time_range_days is not None:
        start = desk.now - timedelta(days=asked.time_range_days)
        since = start if since is None else max(since, start)
    if desk.horizon is not None:
        until = desk.horizon if until is None else min(until, desk.horizon)
        since = since and min(since, until)
    # What the caller has already is left out below: ask for so many more.
    spare = len(desk.conversation.messages)
    return SearchRequest(
        query=asked.query[:LONGEST_QUERY],
        mode=asked.search_mode,
        limit=min(asked.limit + spare, 200),
        threshold=asked.min_relevance_score,
        since=since,
        until=until,
        role=Role(asked.role) if asked.role else None,
        memory_types=tuple(asked.memory_types or ()),
        keywords=tuple(asked.keywords or ()),
        expansions=expansions,
        exclude=frozenset(
            said.message_id for said in desk.conversation.messages if said.message_id is not None
        ),
        now=desk.now,
        time_zone=desk.time_zone,
    )


def _moment(desk: RecallState, name: str, given: str | None) -> datetime | None:
    """A date or time as a model writes it; without a zone it is the user's."""
    if given is None:
        return None
    try:
        moment = datetime.fromisoformat(given.strip())
        return (moment if moment.tzinfo else moment.replace(tzinfo=desk.zone)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidArgument(
            f"{name} {given!r} is not a date or time", hint="Write it like 2026-01-26"
        ) from None


async def _search(desk: RecallState, request: SearchRequest) -> tuple[SearchPage, int]:
    """The page without what only repeats the request; how much of that there was."""
    page = await _page(desk, request)
    echoes, count = Echoes(desk.conversation), 0
    for _ in range(MOST_ROUNDS):
        repeated = echoes.among(page.results)
        if not repeated:
            break
        count += len(repeated)
        request = without(request, repeated)
        page = await _page(desk, request)
    hits = await with_sources(desk.library.store, desk.scope, request, page.results)
    return replace(page, results=tuple(hits)), count


async def _page(desk: RecallState, request: SearchRequest) -> SearchPage:
    """The page, perhaps from a minute ago: the key holds all that could have changed it."""
    user = await desk.library.read_version(desk.scope, request)
    minute = desk.now.replace(second=0, microsecond=0)
    key = (desk.scope, user, replace(request, now=minute))
    page = await desk.caches.searches.get(
        key, lambda: desk.library.search(desk.scope, request, user)
    )
    assert isinstance(page, SearchPage)  # noqa: S101 -- the cache holds nothing else
    return page


def _relax(request: SearchRequest) -> tuple[SearchRequest, list[str]]:
    """The same search with its content filters turned into words of the query."""
    filters = [*request.keywords, *request.memory_types]
    words = " ".join(filter_.replace("_", " ") for filter_ in filters)
    freed = replace(
        request, query=f"{request.query} {words}"[:LONGEST_QUERY], keywords=(), memory_types=()
    )
    return freed, filters


def _answer(
    desk: RecallState,
    asked: SearchMemoriesInput,
    request: SearchRequest,
    page: SearchPage,
    relaxed: list[str],
    repeated: int,
) -> SearchMemoriesOutput:
    notes = desk.notes
    hits = page.results[: asked.limit]
    new_keys = notes.take_hits(hits)
    notes.in_a_row += 1  # only now: a search that failed and is tried again counts once
    notes.withheld = max(notes.withheld, page.withheld)
    if page.degraded is not None:
        notes.degraded[page.message] = None
    arguments = asked.model_dump(exclude_none=True)
    keys = tuple(hit.key for hit in hits)
    notes.searches.append(SearchNote(notes.calls, arguments, page.total_found, keys, new_keys))
    told = [page.describe(withheld=False) if not hits else ""]
    told += [_say_filters(desk, relaxed)] if relaxed else []
    told += [say(desk.language, "nothing_new")] if hits and not new_keys else []
    told += [say(desk.language, "already_given", count=repeated)] if repeated else []
    told += [say(desk.language, "withheld", count=page.withheld)] if page.withheld else []
    if len(asked.query) > LONGEST_QUERY:
        told.append(say(desk.language, "query_cut", size=LONGEST_QUERY))
    return SearchMemoriesOutput(
        success=True,
        total_found=page.total_found,
        results=[_item(desk, hit, asked.query) for hit in hits],
        search_query_expanded=", ".join(request.expansions) or None,
        message=" ".join(filter(None, told)) or None,
        withheld=page.withheld,
        relaxed=relaxed,
        searched=page.searched,
        told_of=dict(page.told_of),
        since=request.since and desk.local(request.since),
        until=request.until and desk.local(request.until),
    )


def _say_filters(desk: RecallState, relaxed: list[str]) -> str:
    return say(desk.language, "relaxed", filters=", ".join(relaxed))


def _item(desk: RecallState, hit: Hit, query: str) -> MemorySearchResultItem:
    return MemorySearchResultItem(
        memory_key=hit.key,
        summary=hit.summary,
        content_preview=preview(hit.content),
        memory_type=hit.memory_type,
        relevance_score=round(hit.score, 3),
        created_at=desk.local(hit.ts),
        keywords=list(hit.keywords),
        kind=hit.kind,
        speaker=hit.speaker,
        role=hit.role,
        passage=_passage(hit.content, query),
        valid_to=hit.valid_to and desk.local(hit.valid_to),
        made_from=made_from(hit.role, hit.metadata),
        session_id=hit.session_id,
        why=asdict(hit.why),
    )


def preview(content: str) -> str:
    """Return the first 200 characters of a content, as tool results show it."""
    return truncate_text(content, PREVIEW, "...")


def _passage(content: str, query: str) -> str | None:
    """The part of a long content that has the words asked for, where that is not its beginning."""
    if len(content) <= PREVIEW:
        return None
    found = snippets(content[:100_000], [query], length=PREVIEW, limit=1, before="", after="")
    return found[0] if found and not content.startswith(found[0].rstrip("…")[:PREVIEW]) else None
