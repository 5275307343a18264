"""The extractor that asks a model, and falls back on the rules where it gives nothing usable."""

from collections.abc import Sequence
from datetime import UTC, datetime, tzinfo

from memrecall.extraction.names import fold_name
from memrecall.extraction.protocol import (
    USER,
    By,
    Decided,
    Entity,
    Extracted,
    Fact,
    Known,
    Related,
    Relation,
    Summary,
    Utterance,
)
from memrecall.extraction.rules import RuleExtractor
from memrecall.extraction.rules.sentences import is_person, own_words
from memrecall.extraction.summaries import shorten
from memrecall.extraction.verify import (
    ENTITY_TYPES,
    check_fact,
    check_relation,
    end_name,
    merge_verdicts,
    open_facts,
)
from memrecall.extraction.wire import (
    DecisionsAnswer,
    FactsAnswer,
    RelationsAnswer,
    SummaryAnswer,
    batches,
    fact_line,
    known_line,
    setting_line,
    to_line,
    utterance_line,
)
from memrecall.model.offline import OFFLINE_FAMILY
from memrecall.model.prompts import Language
from memrecall.model.structured import ModelClient, ask_prompt

SECONDS = 60.0
MOST_LINES = 40
MOST_CHARACTERS = 12_000
_CONTEXT_LINES = 6
_MOST_KNOWN = 60


class ModelExtractor:
    """Reads conversations with a model: each answer is checked against what was said.

    An answer that is no JSON is repaired or asked for once more; then the rules answer, and the
    result says so in `by` and `problem`. Facts that no person said are dropped.
    """

    def __init__(self, client: ModelClient, *, seconds: float = SECONDS) -> None:
        self._client = client
        self._seconds = seconds
        # The offline client answers by the rules: the result must not claim a model.
        self._by: By = "rules" if client.model_info["family"] == OFFLINE_FAMILY else "model"
        self._rules = RuleExtractor()

    async def facts(
        self,
        utterances: Sequence[Utterance],
        *,
        now: datetime,
        zone: tzinfo,
        prompt: str | None = None,
        context: Sequence[Utterance] = (),
    ) -> Extracted:
        """The facts that the utterances tell; `prompt` tells the model what to look for."""
        talk = _Talk(utterances, context)
        if not talk.speaks:
            return Extracted((), self._by)
        facts: list[Fact] = []
        problems: list[str] = []
        groups = list(talk.groups())
        for group in groups:
            lines = [setting_line(now, zone, prompt), *talk.before(group), *group.values()]
            reply = await ask_prompt(
                self._client,
                "extract_facts",
                talk.language,
                lines,
                FactsAnswer,
                seconds=self._seconds,
            )
            if reply.value is None:
                problems.append(reply.problem)
                earlier = talk.earlier(group)
                fallback = await self._rules.facts(
                    talk.of(group), now=now, zone=zone, context=earlier
                )
                facts += fallback.facts
            else:
                shown = {number: talk.said[number] for number in group}
                checked = [check_fact(item, shown, now) for item in reply.value.facts]
                facts += [fact for fact in checked if fact is not None]
        by, problem = self._how(problems, len(groups))
        return Extracted(tuple(dict.fromkeys(facts)), by, problem)

    async def decide(self, facts: Sequence[Fact], known: Sequence[Known]) -> Decided:
        """What to do for each fact; what is known word for word is not asked about."""
        by_rules = await self._rules.decide(facts, known)
        asked = open_facts(facts, by_rules.decisions)
        if not asked or not known:
            return by_rules
        shown = list(known[:_MOST_KNOWN])
        lines = [known_line(number, one) for number, one in enumerate(shown, 1)]
        lines += [fact_line(number, facts[number]) for number in asked]
        language = _language([fact.text for fact in facts])
        reply = await ask_prompt(
            self._client, "decide", language, lines, DecisionsAnswer, seconds=self._seconds
        )
        if reply.value is None:
            return Decided(by_rules.decisions, "rules", reply.problem)
        verdicts = reply.value.decisions
        return Decided(merge_verdicts(facts, shown, verdicts, by_rules.decisions), self._by)

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        """The entities that the utterances name and how they relate."""
        talk = _Talk(utterances, ())
        entities: dict[str, Entity] = {}
        relations: list[Relation] = []
        problems: list[str] = []
        groups = list(talk.groups()) if talk.speaks else []
        for group in groups:
            lines = [setting_line(now, UTC, None), *group.values()]
            reply = await ask_prompt(
                self._client,
                "extract_relations",
                talk.language,
                lines,
                RelationsAnswer,
                seconds=self._seconds,
            )
            if reply.value is None:
                problems.append(reply.problem)
                found = await self._rules.relations(talk.of(group), now=now)
                relations += found.relations
                entities = {**{fold_name(one.name): one for one in found.entities}, **entities}
            else:
                shown = {number: talk.said[number] for number in group}
                checked = [check_relation(item, shown, now) for item in reply.value.relations]
                kept = [relation for relation in checked if relation is not None]
                relations += kept
                entities = {**_entities(reply.value, kept), **entities}
        by, problem = self._how(problems, len(groups))
        return Related(tuple(entities.values()), tuple(dict.fromkeys(relations)), by, problem)

    async def summarise(
        self,
        lines: str | Sequence[Utterance | str],
        limit_characters: int,
        language: Language | None = None,
    ) -> Summary:
        """A summary in the model's words; one that is too long is cut after a sentence."""
        told = [lines] if isinstance(lines, str) else lines
        texts = [one if isinstance(one, str) else one.text for one in told]
        if not any(text.strip() for text in texts) or limit_characters <= 0:
            return Summary("", by="rules")
        shown = [to_line({"limit": limit_characters, "language": language})]
        shown += [
            to_line({"text": one})
            if isinstance(one, str)
            else utterance_line(number, one, one.text)
            for number, one in enumerate(told, 1)
        ]
        reply = await ask_prompt(
            self._client,
            "summarise",
            language or _language(texts),
            shown,
            SummaryAnswer,
            seconds=self._seconds,
        )
        if reply.value is None or not reply.value.summary:
            by_rules = await self._rules.summarise(lines, limit_characters, language)
            return Summary(by_rules.text, "rules", reply.problem or "the summary is empty")
        return Summary(shorten(reply.value.summary, limit_characters), self._by)

    def _how(self, problems: Sequence[str], asked: int) -> tuple[By, str]:
        """Who read a conversation that was asked about in so many parts, and what went wrong."""
        if not problems:
            return self._by, ""
        told = "; ".join(dict.fromkeys(problems))
        if len(problems) == asked:
            return "rules", told
        return self._by, f"{len(problems)} of {asked} parts were read by rules: {told}"


class _Talk:
    """A conversation as it is shown to a model: numbered, without what nobody said."""

    def __init__(self, utterances: Sequence[Utterance], context: Sequence[Utterance]) -> None:
        self.said = dict(enumerate(utterances, 1))
        self._context = list(context)[-_CONTEXT_LINES:]
        self._lines = {
            number: utterance_line(number, one, text)
            for number, one in self.said.items()
            if (text := _shown(one))
        }
        self.language = _language([one.text for one in utterances])

    @property
    def speaks(self) -> bool:
        """Whether a person says anything."""
        return any(is_person(self.said[number]) for number in self._lines)

    def groups(self) -> list[dict[int, str]]:
        """The numbered lines in groups that fit one question."""
        numbered = list(self._lines.items())
        return [dict(group) for group in batches(numbered, MOST_LINES, MOST_CHARACTERS)]

    def of(self, group: dict[int, str]) -> list[Utterance]:
        """The utterances of a group."""
        return [self.said[number] for number in group]

    def earlier(self, group: dict[int, str]) -> list[Utterance]:
        """What was said before a group."""
        first = min(group)
        before = [one for number, one in self.said.items() if number < first]
        return [*self._context, *before][-_CONTEXT_LINES:]

    def before(self, group: dict[int, str]) -> list[str]:
        """What was said before a group, as lines that give no facts."""
        told = [(one, _shown(one)) for one in self.earlier(group)]
        return [utterance_line(0, one, text, context=True) for one, text in told if text]


def _shown(one: Utterance) -> str:
    """What a model is shown of an utterance: of people their own words, of tools nothing."""
    if is_person(one):
        return own_words(one.text)
    return own_words(one.text) if one.role == "assistant" else ""


def _language(texts: Sequence[str]) -> Language:
    return "zh" if any("\u4e00" <= char <= "\u9fff" for text in texts for char in text) else "en"


def _entities(answer: RelationsAnswer, relations: Sequence[Relation]) -> dict[str, Entity]:
    """The entities that the relations connect, with the types that the model gave."""
    types = {fold_name(end_name(one.name)): one.type for one in answer.entities}
    types[USER] = "person"
    names = [name for one in relations for name in (one.source, one.destination)]
    entities: dict[str, Entity] = {}
    for name in names:
        kind = types.get(fold_name(name), "")
        entities[fold_name(name)] = Entity(name, kind if kind in ENTITY_TYPES else "thing")  # type: ignore[arg-type]
    return entities
