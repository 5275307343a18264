"""Whether the conversation shown holds what is meant, or more of it must be seen."""

from collections.abc import Iterable

from memrecall.agent.rules.coverage import covered
from memrecall.agent.rules.findings import Candidate
from memrecall.agent.rules.needs import is_greeting
from memrecall.agent.rules.reading import Line, Reading
from memrecall.agent.rules.transcript import Transcript

_TELLING = 3  # words; a conversation with fewer has not said yet what it is about
_WEAK = 2  # words of its own, with which a reference may still mean many things
_COMPARED = 60  # characters; previews are cut


def meant_in_window(reading: Reading) -> Line | None:
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


def stored_line(line: Line, hits: Iterable[Candidate]) -> list[Candidate]:
    """The hits that are this very message: the conversation came from the store, not the caller."""
    said = " ".join(line.text.split())[:_COMPARED]
    return [hit for hit in hits if " ".join(hit.text.split())[:_COMPARED] == said]


def must_look_further(reading: Reading, transcript: Transcript, unsure: bool) -> bool:
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
