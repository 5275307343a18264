"""Which frame a predicate fits: the order in which the tables are asked."""

import re
from collections.abc import Iterable
from dataclasses import replace

from memrecall.extraction.rules.dating import Moment, has_time, is_ahead
from memrecall.extraction.rules.english.grammar import Predicate
from memrecall.extraction.rules.english.plans import (
    CANCELLED,
    DECISIONS,
    EVENTS,
    FUTURE_STEPS,
    HABIT_ADVERBS,
    HABIT_TIME,
    LEFT,
    PLANS,
    STEPS_WITH_TIME,
    TIMETABLE,
    WISHES,
)
from memrecall.extraction.rules.english.profile import PROFILE, SELF_NAME, WHAT_ELSE
from memrecall.extraction.rules.english.table import frame
from memrecall.extraction.rules.english.tastes import DENIED, TASTES
from memrecall.extraction.rules.frames import Frame, Told

_HABIT = frame(r"(?P<value>.+)", "habit")
_CANNOT_HAVE = frame(
    r"have (?P<value>(?!it\b|that\b|this\b|any\b|both\b|a\b|an\b|the\b|my\b)\w+(?: \w+)?)$",
    "user_preference",
    "avoids",
    "avoids",
)
_STEADY = re.compile(
    r"(?:live|work|study|learn|date|teach|stay|train|prepare|save|plan|look for|think"
    r"|consider|hope|wait)\b"
)
_NO_HABIT = re.compile(
    r"(?:feel|think|wonder|want|need to|find|know|mean|hope|wish|believe|guess|seem|be"
    r"|say|forget|worry)\b|\w+ (?:it|that|this|them)\b"
)
# "I am not drinking tonight" tells nothing of what somebody likes.
_FOR_ONCE = re.compile(
    r"\b(?:today|tonight|tomorrow|this (?:time|morning|evening|week)|right now|for now"
    r"|at the moment|yet)\b",
    re.IGNORECASE,
)
_LASTING = frozenset({"user_profile", "user_preference", "relationship", "habit", "general"})


def told_by(predicate: Predicate, moment: Moment, *, of_speaker: bool, lead: str) -> Told | None:
    """What a predicate of a person tells, if it is something that lasts."""
    if predicate.tense == "unreal":
        return (
            _first(WISHES, replace(predicate, tense="present"), moment, lead)
            if predicate.modal == "would"
            else None
        )
    denied = _first(_denials(predicate), predicate, moment, lead) if predicate.negated else None
    if denied is not None and _FOR_ONCE.search(_said(predicate, lead)):
        return None
    if denied is not None:
        return replace(denied, negated=True, ended=predicate.ended)
    if predicate.ended and predicate.tense == "past":
        return _over(predicate, moment, lead)
    if told := _under_way(predicate, moment, lead):
        return _denied(told, predicate)
    told = _first(PROFILE, predicate, moment, lead)
    if of_speaker and told is None:
        told = _first(SELF_NAME, predicate, moment, lead)
    told = told or _habit(predicate, lead)
    told = told or _first((*TASTES, *DECISIONS, *CANCELLED, *LEFT, *PLANS), predicate, moment, lead)
    told = told or _step(predicate, moment, lead)
    told = told or _first(WHAT_ELSE, predicate, moment, lead)
    return _denied(told, predicate) if told else None


def _denials(predicate: Predicate) -> tuple[Frame, ...]:
    # "I cannot have dairy" is about food, "I do not have a car" is not.
    return (_CANNOT_HAVE, *DENIED) if predicate.modal == "cannot" else DENIED


def _under_way(predicate: Predicate, moment: Moment, lead: str) -> Told | None:
    """ "She is getting married in July": told in the present, and yet to come."""
    if predicate.tense != "present" or predicate.modal or _STEADY.match(predicate.core):
        return None
    frames = STEPS_WITH_TIME if predicate.progressive else TIMETABLE
    whole = _said(predicate, lead)
    regular = predicate.adverbs & HABIT_ADVERBS or HABIT_TIME.search(whole)
    return (
        None if regular or not is_ahead(whole, moment) else _first(frames, predicate, moment, lead)
    )


def _said(predicate: Predicate, lead: str) -> str:
    return f"{predicate.core} {lead}".strip()


def _over(predicate: Predicate, moment: Moment, lead: str) -> Told | None:
    """ "I used to live there": it fills no slot, and what it tells is no more."""
    told = _first((*PROFILE, *TASTES), replace(predicate, tense="present"), moment, lead)
    if told is None:
        return None
    over = replace(told.frame, field=None, memory_type="event")
    return replace(told, frame=over, negated=True, ended=True)


def _first(frames: Iterable[Frame], predicate: Predicate, moment: Moment, lead: str) -> Told | None:
    for one in frames:
        if predicate.tense not in one.tenses:
            continue
        match = one.pattern.match(predicate.core)
        if match and (not one.timed or has_time(_said(predicate, lead), moment)):
            value = match["value"] or match.groupdict().get("course") or ""
            return Told(one, value.strip(), one.negated, one.ended)
    return None


def _habit(predicate: Predicate, lead: str) -> Told | None:
    regular = predicate.adverbs & HABIT_ADVERBS or HABIT_TIME.search(_said(predicate, lead))
    if predicate.tense != "present" or not regular or predicate.modal:
        return None
    if _NO_HABIT.match(predicate.core):
        return None
    return Told(_HABIT, predicate.core, negated=False)


def _step(predicate: Predicate, moment: Moment, lead: str) -> Told | None:
    """Something done or to be done once: with a time, or of the kind that one tells for long."""
    if predicate.tense == "future":
        # "I will send it" is said all day; with a time it is a plan.
        promised = predicate.modal in ("will", "shall") and not has_time(
            _said(predicate, lead), moment
        )
        return None if promised else _first(FUTURE_STEPS, predicate, moment, lead)
    if predicate.tense == "past":
        return _first(EVENTS, predicate, moment, lead)
    return None


def _denied(told: Told, predicate: Predicate) -> Told | None:
    """What "not" makes of it: a fact that denies, or nothing worth keeping."""
    ended = told.ended or predicate.ended
    if not predicate.negated:
        return replace(told, negated=told.negated or ended, ended=ended)
    if told.negated and not told.ended:
        return None  # "I do not hate it" says little
    if told.frame.memory_type in _LASTING or ended or predicate.tense == "future":
        return replace(told, negated=True, ended=ended)
    return None
