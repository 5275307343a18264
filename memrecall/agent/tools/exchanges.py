"""Stored questions and answers that are no evidence for a request."""

from __future__ import annotations

import re
from collections.abc import Sequence

from memrecall.agent.conversation import Conversation
from memrecall.agent.state import RecallState
from memrecall.embedding.embedders import LocalEmbedder
from memrecall.errors import EmbedderFailed
from memrecall.search import Hit, all_terms
from memrecall.types import Message, Role
from memrecall.workers import in_process

# Metadata of a stored answer: what wrote it, and the keys of the memories it is based on.
ANSWERED_BY, BY_RULES = "answered_by", "rules"
RECALLED = "recalled"

_ADDRESSED = re.compile(r"(?:@\S+\s+)+")
_MOST_ANSWERS = 10  # the best ones, whose meaning is read
_UNKNOWN = (
    "I do not know.",
    "I found nothing about it in earlier conversations.",
    "我不知道。",
    "在以前的对话里没有找到相关内容。",
)
# Cosines of the local model. Of 18 ways to say that nothing is known, all but one are that near to
# one of `_UNKNOWN`: by themselves, or in the words of the question. Of 23 answers with a content,
# one is. Of 18 questions asked in other words, 16 are that near to the first; of 14 about
# something that a question only mentions, none is.
_SAYS_UNKNOWN, _SAYS_UNKNOWN_OF, _REPEATS = 0.4, 0.2, 0.5
_SAME_QUESTION = 0.7


async def find_exchanges(state: RecallState, hits: Sequence[Hit]) -> set[str]:
    """Return the keys of hits that are no evidence for the request.

    They repeat it, or say that nothing is known.
    """
    if not state.conversation.messages:
        return set()
    repetitions = await _find_repetitions(state.conversation, hits)
    return repetitions | await _find_answered(state, hits, repetitions)


async def _find_repetitions(conversation: Conversation, hits: Sequence[Hit]) -> set[str]:
    """Return the keys of hits that only repeat the request.

    The caller's messages do, those with the same words, and what was quoted without a model: it is
    stored itself.
    """
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


async def _find_answered(
    state: RecallState, hits: Sequence[Hit], repetitions: set[str]
) -> set[str]:
    """Return the keys of answers that know nothing, and of answered questions that ask the same.

    An answer of a chat names the message that it answers, which is so known to have asked an agent.
    """
    keys = [hit.key for hit in hits if _is_answer(hit)][:_MOST_ANSWERS]
    if not keys:
        return set()
    timeline = state.library.store.timeline(state.scope)
    answers = await timeline.get_many(keys)
    parents = {each.parent_message_id for each in answers if each.parent_message_id}
    asked = {each.message_id: each for each in await timeline.get_many(sorted(parents))}
    pairs = [
        (asked[each.parent_message_id], each) for each in answers if each.parent_message_id in asked
    ]
    # "I do not know which city Kate lives in" is no evidence once she has told it.
    unfounded = {
        answer.message_id
        for question, answer in pairs
        if question.message_id in repetitions and answer.metadata.get(RECALLED) == []
    }
    return unfounded | await _compare_meanings(state, pairs)


def _is_answer(hit: Hit) -> bool:
    is_by_chat = ANSWERED_BY in hit.metadata or isinstance(hit.metadata.get(RECALLED), list)
    return hit.kind == "message" and hit.role == Role.ASSISTANT.value and is_by_chat


async def _compare_meanings(
    state: RecallState, pairs: Sequence[tuple[Message, Message]]
) -> set[str]:
    """Return the keys of answers that say that nothing is known, and of equal questions.

    Their meanings are compared by the local model alone: others give other cosines.
    """
    if not pairs or not isinstance(state.library.embedder, LocalEmbedder):
        return set()
    questions = [_unaddressed(question.content) for question, _ in pairs]
    texts = [*_UNKNOWN, _unaddressed(state.conversation.request.text), *questions]
    texts += [answer.content for _, answer in pairs]
    try:
        vectors = await state.library.engine.embed(texts)
    except EmbedderFailed:  # as the search says
        return set()
    start = len(_UNKNOWN)
    unknown, request = vectors[:start], vectors[start]
    found: set[str] = set()
    for place, (question, answer) in enumerate(pairs, start + 1):
        asked, told = vectors[place], vectors[place + len(pairs)]
        nearness = float((unknown @ told).max())
        is_empty = nearness >= _SAYS_UNKNOWN or (
            nearness >= _SAYS_UNKNOWN_OF and float(asked @ told) >= _REPEATS
        )
        # A statement may have been answered too.
        is_question = is_empty or question.content.rstrip().endswith(("?", "？"))
        if is_empty:
            found.add(answer.message_id)
        if is_question and float(asked @ request) >= _SAME_QUESTION:
            found.add(question.message_id)
    return found


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
