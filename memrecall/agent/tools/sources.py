"""Answers that were made from something recalled lead to what they were made from."""

from collections.abc import Sequence
from dataclasses import replace

from memrecall.agent.tools.echoes import made_from
from memrecall.scope import Scope
from memrecall.search import Hit, SearchRequest
from memrecall.store import Store
from memrecall.types import Message, Role


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
