"""Which search comes next: the first one, wider ones while little is found, closer ones after."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from memrecall.agent.rules.content import content_words
from memrecall.agent.rules.findings import Findings
from memrecall.agent.rules.reading import Reading
from memrecall.agent.rules.transcript import REFUSED, Transcript
from memrecall.agent.rules.window import meant_in_window
from memrecall.text.times import TimeSpan

LOW = 0.3
LOWEST = 0.1  # for words alone: where little is stored, scores say little
USUAL = 0.5
ALL = 10
LONGEST_QUERY = 480
FEW = 5  # hits; with fewer the search is widened
SURE = 0.65  # a confidence with which few hits are enough
_FEEDBACK = 4
_STRONG = 0.7  # with no hit so good, what is close to it may score below the usual threshold


@dataclass(frozen=True, slots=True)
class Plan:
    """A search to make: its arguments, and the name of the reason for it."""

    why: str
    arguments: dict[str, Any]


def next_search(
    reading: Reading, transcript: Transcript, found: Findings, confidence: float
) -> Plan | None:
    """The next search that was not made yet; None when no other one promises anything."""
    tried = [_essence(step.arguments) for step in transcript.searches if step.error != REFUSED]
    tried += [_essence(arguments) for arguments in transcript.briefing.tried]
    for plan in _plans(reading, transcript, found, confidence):
        if plan.arguments["query"] and _essence(plan.arguments) not in tried:
            return plan
    return None


def _essence(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments with all defaults in place, as the tool compares them."""
    defaults = {"search_mode": "hybrid", "limit": 5, "min_relevance_score": USUAL}
    kept = {**defaults, **{k: v for k, v in arguments.items() if v is not None}}
    kept.pop("total_found", None)
    return kept


def _plans(
    reading: Reading, transcript: Transcript, found: Findings, confidence: float
) -> Iterator[Plan]:
    base = _base(reading)
    line = meant_in_window(reading)
    if line is not None:
        # What the caller gave is never a hit; what only the store has can be handed off.
        yield Plan(
            "is_stored",
            base | {"query": _clip(" ".join(line.text.split())), "min_relevance_score": USUAL},
        )
        return
    yield Plan("first", base | _filters(reading))
    last = transcript.searches[-1] if transcript.searches else None
    if last is not None and last.error == "embedder":
        yield Plan("words_only", base | {"search_mode": "keyword"})
    if _too_little(found, confidence):
        yield from _wider(reading, base)
    if found.hits:
        fed_back = any(_is_feedback(step.arguments, base) for step in transcript.searches)
        yield from (
            plan
            for plan in _closer(reading, base, found)
            if not (fed_back and plan.why == "feedback")
        )


def _too_little(found: Findings, confidence: float) -> bool:
    """Whether more must be looked for: few hits, unless they are good and surely meant."""
    if len(found.hits) >= FEW:
        return False
    return confidence < SURE or found.hits[0].score < USUAL


def _is_feedback(arguments: dict[str, Any], base: dict[str, Any]) -> bool:
    """Whether a search added words of hits: those stand before the query."""
    query = str(arguments.get("query", ""))
    return query != base["query"] and query.endswith(base["query"])


def _base(reading: Reading) -> dict[str, Any]:
    return {
        "query": query_of(reading),
        "search_mode": reading.mode,
        "limit": ALL,
        # A conversation that only comes near something is seldom close to it in words.
        "min_relevance_score": LOW if is_topic(reading) else USUAL,
    }


def is_topic(reading: Reading) -> bool:
    """Whether it is the conversation that is to be searched by, not one question."""
    alone = reading.points_back or reading.personal
    return bool(reading.earlier) and (reading.bare or not alone)


def query_of(reading: Reading) -> str:
    """The words to search by: the question itself; with what was said before if it names nothing.

    A whole question finds more than its keywords do: the embedder reads sentences.
    """
    own = reading.question or reading.text
    if is_topic(reading):
        said = [line.text for line in reversed(reading.earlier) if line.words]
        return _clip("\n".join([*said, "" if reading.bare else own]))
    return _clip(" ".join(own.split()))


def _clip(text: str) -> str:
    """The end of a text that is too long: the latest words matter most.

    Lines stay lines: the search reads several as a conversation.
    """
    lines = (" ".join(line.split()) for line in text.splitlines())
    return "\n".join(filter(None, lines))[-LONGEST_QUERY:]


def _filters(reading: Reading) -> dict[str, Any]:
    return _span(reading.timing.said) | ({"role": reading.whose} if reading.whose else {})


def _span(span: TimeSpan | None) -> dict[str, Any]:
    if span is None:
        return {}
    ends = {"since": span.start, "until": span.end}
    return {name: end.isoformat() for name, end in ends.items() if end is not None}


def _wider(reading: Reading, base: dict[str, Any]) -> Iterator[Plan]:
    """Step by step: without the time, a lower score, any speaker, other words, by meaning.

    Three searches that bring nothing are all that the loop lets pass: the likeliest come first.
    """
    low = base | {"min_relevance_score": LOW}
    if reading.timing.said is not None:
        yield Plan("any_time", low | ({"role": reading.whose} if reading.whose else {}))
    elif reading.whose:
        yield Plan("anyone", low)
    elif reading.mode != "hybrid":
        yield Plan("both", low | {"search_mode": "hybrid"})
    else:
        yield Plan("lower", low)
    weak = len(reading.words) + len(reading.exact) <= 1
    if weak and reading.earlier and reading.points_back:
        words = " ".join((reading.question, *reading.context_words[:8]))
        yield Plan("context", low | {"query": _clip(words)})
    if reading.words or reading.exact:
        words = " ".join(dict.fromkeys((*reading.exact, *reading.words[:8])))
        words_only = {"search_mode": "keyword", "min_relevance_score": LOWEST}
        yield Plan("keywords", base | words_only | {"query": _clip(words)})
    yield Plan("anyone", low)
    yield Plan("meaning", low | {"search_mode": "semantic"})


def _closer(reading: Reading, base: dict[str, Any], found: Findings) -> Iterator[Plan]:
    """More of what was found: the named person's own words, the named time, the same day."""
    if found.hits[0].score < _STRONG:
        base = base | {"min_relevance_score": LOW}
    spoken = speaking_as(reading, found)
    if spoken is not None:
        yield Plan("as_speaker", base | spoken)
    spans = [span for span in reading.timing.spans if span.start or span.end]
    if reading.timing.said or reading.whose:
        yield Plan("unfiltered", base)
    if spans and not reading.timing.said:
        yield Plan("in_time", base | _span(spans[0]))
    anchor = found.hits[0]
    if anchor.day:
        yield Plan("same_day", base | _day(anchor.day))
    words = [word for hit in found.hits[:2] for word in content_words(hit.text)[:_FEEDBACK]]
    yield Plan("feedback", base | {"query": _clip(f"{' '.join(words)} {base['query']}")})


def _day(day: str) -> dict[str, Any]:
    try:
        start = date.fromisoformat(day)
    except ValueError:
        return {}
    return {"since": day, "until": (start + timedelta(days=1)).isoformat()}


def named_speakers(reading: Reading, found: Findings) -> list[str]:
    """The people among the speakers of the hits whom the request names."""
    speakers = dict.fromkeys(hit.speaker for hit in found.hits if hit.speaker)
    return [who for who in speakers if _name_pattern(who).search(reading.text)]


def speaking_as(reading: Reading, found: Findings) -> dict[str, Any] | None:
    """The question as the person it names would have put it: people say "I", not their names."""
    speaker = next(iter(named_speakers(reading, found)), None)
    if speaker is None:
        return None
    roles = {hit.role for hit in found.hits if hit.speaker == speaker}
    only = {"role": roles.pop()} if roles in ({"user"}, {"assistant"}) else {}
    mine, me = ("我的", "我") if reading.language == "zh" else ("my", "I")
    text = _name_pattern(speaker).sub(lambda m: mine if m[1] else me, reading.question)
    return {"query": _clip(text)} | only


def _name_pattern(speaker: str) -> re.Pattern[str]:
    edge = r"\b" if speaker.isascii() else ""
    return re.compile(rf"{edge}{re.escape(speaker)}{edge}('s|’s|的)?", re.IGNORECASE)
