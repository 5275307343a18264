"""Which search comes next: the first one, wider ones while little is found, closer ones after."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any

from memrecall.agent.rules.content import content_words
from memrecall.agent.rules.findings import Findings
from memrecall.agent.rules.reading import Reading
from memrecall.agent.rules.transcript import Transcript
from memrecall.text.times import TimeSpan

LOW = 0.3
USUAL = 0.5
ALL = 10
LONGEST_QUERY = 480
FEW = 5  # hits; with fewer the search is widened
_FEEDBACK = 4


@dataclass(frozen=True, slots=True)
class Plan:
    """A search to make: its arguments, and the name of the reason for it."""

    why: str
    arguments: dict[str, Any]


def next_search(reading: Reading, transcript: Transcript, found: Findings) -> Plan | None:
    """The next search that was not made yet; None when no other one promises anything."""
    tried = [_essence(step.arguments) for step in transcript.searches]
    tried += [_essence(arguments) for arguments in transcript.briefing.tried]
    for plan in _plans(reading, found, transcript):
        if plan.arguments["query"] and _essence(plan.arguments) not in tried:
            return plan
    return None


def _essence(arguments: dict[str, Any]) -> dict[str, Any]:
    """Arguments without what is at its default, as the tool compares them."""
    defaults = {"search_mode": "hybrid", "limit": 5, "min_relevance_score": USUAL}
    kept = {**defaults, **{k: v for k, v in arguments.items() if v is not None}}
    kept.pop("total_found", None)
    return kept


def _plans(reading: Reading, found: Findings, transcript: Transcript) -> Iterator[Plan]:
    base = _base(reading)
    yield Plan("first", base | _filters(reading))
    last = transcript.searches[-1] if transcript.searches else None
    if last is not None and last.error == "embedder":
        yield Plan("words_only", base | {"search_mode": "keyword"})
    if len(found.hits) < FEW:
        yield from _wider(reading, base)
    if found.hits:
        yield from _closer(reading, base, found)


def _base(reading: Reading) -> dict[str, Any]:
    return {
        "query": query_of(reading),
        "search_mode": reading.mode,
        "limit": ALL,
        "min_relevance_score": USUAL,
    }


def query_of(reading: Reading) -> str:
    """The words to search by: the question itself; with what was said before if it names nothing.

    A whole question finds more than its keywords do: the embedder reads sentences.
    """
    own = reading.question or reading.text
    if reading.earlier and (reading.bare or not reading.points_back):
        said = [line.text for line in reversed(reading.earlier) if line.words]
        return _clip("\n".join([*said, "" if reading.bare else own]))
    return _clip(own)


def _clip(text: str) -> str:
    """The end of a text that is too long: the latest words matter most."""
    return " ".join(text.split())[-LONGEST_QUERY:]


def _filters(reading: Reading) -> dict[str, Any]:
    return _span(reading.timing.said) | ({"role": reading.whose} if reading.whose else {})


def _span(span: TimeSpan | None) -> dict[str, Any]:
    ends = {"since": span and span.start, "until": span and span.end}
    return {name: end.isoformat() for name, end in ends.items() if end is not None}


def _wider(reading: Reading, base: dict[str, Any]) -> Iterator[Plan]:
    """Step by step: without the time, a lower score, any speaker, other words, by meaning."""
    whose = {"role": reading.whose} if reading.whose else {}
    if reading.timing.said is not None:
        yield Plan("any_time", base | whose)
    low = base | {"min_relevance_score": LOW}
    yield Plan("lower", low | whose)
    if reading.whose:
        yield Plan("anyone", low)
    if reading.earlier and reading.points_back:
        words = " ".join((reading.question, *reading.context_words[:8]))
        yield Plan("context", low | {"query": _clip(words)})
    yield Plan("meaning", low | {"search_mode": "semantic"})
    if reading.words:
        yield Plan("keywords", low | {"query": " ".join(reading.words[:8])})


def _closer(reading: Reading, base: dict[str, Any], found: Findings) -> Iterator[Plan]:
    """More of what was found: the named person's own words, the named time, the same day."""
    spoken = speaking_as(reading, found)
    if spoken is not None:
        yield Plan("as_speaker", base | spoken)
    spans = [span for span in reading.timing.spans if span.start or span.end]
    if spans and not reading.timing.said:
        yield Plan("in_time", base | _span(spans[0]))
    anchor = found.hits[0]
    if anchor.day and not reading.timing.said:
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
    for speaker in named_speakers(reading, found)[:1]:
        roles = {hit.role for hit in found.hits if hit.speaker == speaker}
        named, is_chinese = _name_pattern(speaker), reading.language == "zh"
        text = named.sub(lambda match: _first_person(match, is_chinese), reading.question)
        alone = roles <= {"user"} or roles <= {"assistant"}
        return {"query": _clip(text)} | ({"role": roles.pop()} if alone else {})
    return None


def _name_pattern(speaker: str) -> re.Pattern[str]:
    edge = r"\b" if speaker.isascii() else ""
    return re.compile(rf"{edge}{re.escape(speaker)}{edge}('s|’s|的)?", re.IGNORECASE)


def _first_person(match: re.Match[str], is_chinese: bool) -> str:
    if is_chinese:
        return "我的" if match[1] else "我"
    return "my" if match[1] else "I"
