"""Which search comes next: the first one, and wider ones where it found nothing that fits.

A second search that only looks closer is not worth its turn. With words of the best hits, on their
day, within the named time or in the named person's own words it brings 0 to 8 of 100 pieces of
evidence, among up to five new keys, and moves the F1 of what is handed off by 0.02 at most, as
often down as up.
"""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from memrecall.agent.offline.findings import Candidate, Findings, covered
from memrecall.agent.offline.needs import is_greeting
from memrecall.agent.offline.request import ParsedRequest, WindowMessage
from memrecall.agent.offline.transcript import REFUSED, Transcript
from memrecall.text.times import TimeSpan

_TELLING = 3  # words; a conversation with fewer has not said yet what it is about
_WEAK = 2  # words of its own, with which a reference may still mean many things
_COMPARED = 60  # characters; previews are cut


def meant_in_window(reading: ParsedRequest) -> WindowMessage | None:
    """The earlier message that a near reference means, if the reference stays in the window.

    "Go on" and "this one" mean what was just said; "that plan" means an earlier message that has a
    plan and more to say. What points at another conversation is never answered from this one.
    """
    if reading.points_back or not reading.references or reading.timing.spans:
        return None
    telling = [line for line in reading.earlier if line.words]
    if reading.bare:
        return telling[0] if telling else None
    wanted = (*reading.exact, *reading.words)
    for line in telling:
        if len(line.words) > len(wanted) and covered(wanted, line.text) >= 1:
            return line
    return None


def stored_line(line: WindowMessage, hits: Iterable[Candidate]) -> list[Candidate]:
    """The hits that are this very message: the conversation came from the store, not the caller."""
    said = " ".join(line.text.split())[:_COMPARED]
    return [hit for hit in hits if " ".join(hit.text.split())[:_COMPARED] == said]


def must_look_further(reading: ParsedRequest, transcript: Transcript, unsure: bool) -> bool:
    """Whether to ask for earlier messages: the reference points outside and names too little.

    One that names a little is searched first; earlier messages are asked for if that did not tell.
    """
    briefing = transcript.briefing
    if transcript.expansion_refused or not briefing.older_messages:
        return False
    if briefing.iteration >= briefing.max_iterations:
        return False
    if reading.topical:
        # A conversation is searched by itself: a little more of it finds more.
        return briefing.iteration == 1 and not transcript.steps and not is_greeting(reading.text)
    if not reading.references:
        return False
    if reading.bare and len(reading.context_words) < _TELLING:
        return not transcript.steps
    weak = len(reading.words) + len(reading.exact) <= _WEAK
    return weak and unsure and bool(transcript.searches)


# A model is shown few results, which should be good ones; the rules judge for themselves.
USUAL = 0.3
LOW = 0.15
LOWEST = 0.1  # for words alone: where little is stored, scores say little
_DEFAULT = 0.5  # the tool's
ALL = 10
LONGEST_QUERY = 980
_FIRST_SHOWN = 4  # messages before the asked one that the first window shows
_OLDER_WORDS = 10


@dataclass(frozen=True, slots=True)
class SearchPlan:
    """A search to make: its arguments, and the name of the reason for it."""

    why: str
    arguments: dict[str, Any]


def next_search(
    reading: ParsedRequest, transcript: Transcript, found: Findings, abstains: bool
) -> SearchPlan | None:
    """The next search that was not made yet; None when no other one promises anything.

    `abstains` says that nothing of what was found fits well enough.
    """
    tried = [_essence(step.arguments) for step in transcript.searches if step.error != REFUSED]
    tried += [_essence(arguments) for arguments in transcript.briefing.tried]
    for plan in _plans(reading, transcript, found, abstains):
        if plan.arguments["query"] and _essence(plan.arguments) not in tried:
            return plan
    return None


def _essence(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with all defaults in place, as the tool compares them."""
    defaults = {"search_mode": "hybrid", "limit": 5, "min_relevance_score": _DEFAULT}
    kept = {**defaults, **{k: v for k, v in arguments.items() if v is not None}}
    kept.pop("total_found", None)
    return kept


def _plans(
    reading: ParsedRequest, transcript: Transcript, found: Findings, abstains: bool
) -> Iterator[SearchPlan]:
    base = _base(reading)
    line = meant_in_window(reading)
    if line is not None:
        # What the caller gave is never a hit; what only the store has can be handed off.
        yield SearchPlan("is_stored", base | {"query": _clip(" ".join(line.text.split()))})
        return
    older = _words_of_older_lines(reading) if transcript.briefing.iteration > 1 else ()
    if older and not reading.topical:
        yield SearchPlan(
            "first_context", base | {"query": _clip(" ".join([base["query"], *older]))}
        )
    yield SearchPlan("first", base | _filters(reading))
    last = transcript.searches[-1] if transcript.searches else None
    if last is not None and last.error == "embedder":
        yield SearchPlan("words_only", base | {"search_mode": "keyword"})
    if (not found.hits or (abstains and _is_filtered(reading))) and not _asks_only_when(reading):
        yield from _wider(reading, base)


def _asks_only_when(reading: ParsedRequest) -> bool:
    """Whether only a time tells what is asked for: then what was said at another one is not."""
    return reading.timing.said is not None and not reading.words and not reading.exact


def _words_of_older_lines(reading: ParsedRequest) -> tuple[str, ...]:
    """The telling words of what only a larger window shows."""
    words = (word for line in reading.earlier[_FIRST_SHOWN:] for word in line.words)
    return tuple(dict.fromkeys(words))[:_OLDER_WORDS]


def _is_filtered(reading: ParsedRequest) -> bool:
    """Whether the first search looked at a part of the past only, or only for the very words."""
    return bool(reading.timing.said or reading.whose or reading.mode != "hybrid")


def _base(reading: ParsedRequest) -> dict[str, Any]:
    return {
        "query": query_of(reading),
        "search_mode": reading.mode,
        "limit": ALL,
        "min_relevance_score": USUAL,
    }


def query_of(reading: ParsedRequest) -> str:
    """The words to search by: the question itself; with what was said before if it names nothing.

    A whole question finds more than its keywords do: the embedder reads sentences.
    """
    own = reading.question or reading.text
    if reading.topical:
        said = [line.text for line in reversed(reading.earlier) if line.words]
        return _clip("\n".join([*said, "" if reading.bare else own]))
    return _clip(" ".join(own.split()))


def _clip(text: str) -> str:
    """The end of a text that is too long: the latest words matter most.

    Lines stay lines: the search reads several as a conversation.
    """
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(filter(None, lines))[-LONGEST_QUERY:]


def _filters(reading: ParsedRequest) -> dict[str, Any]:
    return _span(reading.timing.said) | ({"role": reading.whose} if reading.whose else {})


def _span(span: TimeSpan | None) -> dict[str, Any]:
    if span is None:
        return {}
    ends = {"since": span.start, "until": span.end}
    return {name: end.isoformat() for name, end in ends.items() if end is not None}


def _wider(reading: ParsedRequest, base: dict[str, Any]) -> Iterator[SearchPlan]:
    """Step by step: without the time, a lower score, any speaker, other words, by meaning.

    Three searches that bring nothing are all that the loop lets pass: the likeliest come first.
    """
    low = base | {"min_relevance_score": LOW}
    if reading.timing.said is not None:
        yield SearchPlan("any_time", low | ({"role": reading.whose} if reading.whose else {}))
    elif reading.whose:
        yield SearchPlan("anyone", low)
    elif reading.mode != "hybrid":
        yield SearchPlan("both", low | {"search_mode": "hybrid"})
    else:
        yield SearchPlan("lower", low)
    weak = len(reading.words) + len(reading.exact) <= 1
    if weak and reading.earlier and reading.points_back:
        words = " ".join((reading.question, *reading.context_words[:8]))
        yield SearchPlan("context", low | {"query": _clip(words)})
    if reading.words or reading.exact:
        words = " ".join(dict.fromkeys((*reading.exact, *reading.words[:8])))
        words_only = {"search_mode": "keyword", "min_relevance_score": LOWEST}
        yield SearchPlan("keywords", base | words_only | {"query": _clip(words)})
    yield SearchPlan("anyone", low)
    yield SearchPlan("meaning", low | {"search_mode": "semantic"})


def named_speakers(reading: ParsedRequest, found: Findings) -> list[str]:
    """The people among the speakers of the hits whom the request names."""
    speakers = dict.fromkeys(hit.speaker for hit in found.hits if hit.speaker)
    return [who for who in speakers if _name_pattern(who).search(reading.text)]


def _name_pattern(speaker: str) -> re.Pattern[str]:
    edge = r"\b" if speaker.isascii() else ""
    return re.compile(rf"{edge}{re.escape(speaker)}{edge}('s|’s|的)?", re.IGNORECASE)
