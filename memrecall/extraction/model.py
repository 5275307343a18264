"""The extractor that asks a model, with the rules as its fallback."""

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
from memrecall.model.structured import ModelClient, ask_prompt
from memrecall.types import Language

SECONDS = 60.0
MAX_LINES = 40
MAX_CHARACTERS = 12_000
_CONTEXT_LINES = 6
_MAX_KNOWN = 60


class ModelExtractor:
    """Reads conversations with a model, and checks each reply against the conversation.

    A reply that is not JSON is repaired or requested once more; then the rules answer, and the
    result says so in `by` and `problem`. Facts that no person stated are dropped.
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
        """Return the facts of the utterances; `prompt` tells the model what to look for."""
        conversation = _PromptConversation(utterances, context)
        if not conversation.has_speech:
            return Extracted((), self._by)
        facts: list[Fact] = []
        problems: list[str] = []
        groups = list(conversation.groups())
        for group in groups:
            lines = [setting_line(now, zone, prompt), *conversation.before(group), *group.values()]
            reply = await ask_prompt(
                self._client,
                "extract_facts",
                conversation.language,
                lines,
                FactsAnswer,
                seconds=self._seconds,
            )
            if reply.value is None:
                problems.append(reply.problem)
                earlier = conversation.earlier(group)
                fallback = await self._rules.facts(
                    conversation.utterances_of(group), now=now, zone=zone, context=earlier
                )
                facts += fallback.facts
            else:
                visible = {number: conversation.utterances[number] for number in group}
                checked = [check_fact(item, visible, now) for item in reply.value.facts]
                facts += [fact for fact in checked if fact is not None]
        by, problem = self._describe(problems, len(groups))
        return Extracted(tuple(dict.fromkeys(facts)), by, problem)

    async def decide(self, facts: Sequence[Fact], known: Sequence[Known]) -> Decided:
        """Return what to do for each fact; the model is not asked about facts known verbatim."""
        by_rules = await self._rules.decide(facts, known)
        asked = open_facts(facts, by_rules.decisions)
        if not asked or not known:
            return by_rules
        visible = list(known[:_MAX_KNOWN])
        lines = [known_line(number, one) for number, one in enumerate(visible, 1)]
        lines += [fact_line(number, facts[number]) for number in asked]
        language = _language([fact.text for fact in facts])
        reply = await ask_prompt(
            self._client, "decide", language, lines, DecisionsAnswer, seconds=self._seconds
        )
        if reply.value is None:
            return Decided(by_rules.decisions, "rules", reply.problem)
        verdicts = reply.value.decisions
        return Decided(merge_verdicts(facts, visible, verdicts, by_rules.decisions), self._by)

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        """Return the entities that the utterances name, and their relations."""
        conversation = _PromptConversation(utterances, ())
        entities: dict[str, Entity] = {}
        relations: list[Relation] = []
        problems: list[str] = []
        groups = list(conversation.groups()) if conversation.has_speech else []
        for group in groups:
            lines = [setting_line(now, UTC, None), *group.values()]
            reply = await ask_prompt(
                self._client,
                "extract_relations",
                conversation.language,
                lines,
                RelationsAnswer,
                seconds=self._seconds,
            )
            if reply.value is None:
                problems.append(reply.problem)
                found = await self._rules.relations(conversation.utterances_of(group), now=now)
                relations += found.relations
                entities = {**{fold_name(one.name): one for one in found.entities}, **entities}
            else:
                visible = {number: conversation.utterances[number] for number in group}
                checked = [check_relation(item, visible, now) for item in reply.value.relations]
                kept = [relation for relation in checked if relation is not None]
                relations += kept
                entities = {**_entities(reply.value, kept), **entities}
        by, problem = self._describe(problems, len(groups))
        return Related(tuple(entities.values()), tuple(dict.fromkeys(relations)), by, problem)

    async def summarise(
        self,
        lines: str | Sequence[Utterance | str],
        limit_characters: int,
        language: Language | None = None,
    ) -> Summary:
        """Return a summary by the model; one that is too long is cut after a sentence."""
        messages = [lines] if isinstance(lines, str) else lines
        texts = [one if isinstance(one, str) else one.text for one in messages]
        if not any(text.strip() for text in texts) or limit_characters <= 0:
            return Summary("", by="rules")
        prompt_lines = [to_line({"limit": limit_characters, "language": language})]
        prompt_lines += [
            to_line({"text": one})
            if isinstance(one, str)
            else utterance_line(number, one, one.text)
            for number, one in enumerate(messages, 1)
        ]
        reply = await ask_prompt(
            self._client,
            "summarise",
            language or _language(texts),
            prompt_lines,
            SummaryAnswer,
            seconds=self._seconds,
        )
        if reply.value is None or not reply.value.summary:
            by_rules = await self._rules.summarise(lines, limit_characters, language)
            return Summary(by_rules.text, "rules", reply.problem or "the summary is empty")
        return Summary(shorten(reply.value.summary, limit_characters), self._by)

    def _describe(self, problems: Sequence[str], parts: int) -> tuple[By, str]:
        """Return who read a conversation of several parts, and what went wrong."""
        if not problems:
            return self._by, ""
        details = "; ".join(dict.fromkeys(problems))
        if len(problems) == parts:
            return "rules", details
        return self._by, f"{len(problems)} of {parts} parts were read by rules: {details}"


class _PromptConversation:
    """A conversation as a model sees it: numbered, with people's own words only."""

    def __init__(self, utterances: Sequence[Utterance], context: Sequence[Utterance]) -> None:
        self.utterances = dict(enumerate(utterances, 1))
        self._context = list(context)[-_CONTEXT_LINES:]
        self._lines = {
            number: utterance_line(number, one, text)
            for number, one in self.utterances.items()
            if (text := _visible_text(one))
        }
        self.language = _language([one.text for one in utterances])

    @property
    def has_speech(self) -> bool:
        """Return True if a person says anything."""
        return any(is_person(self.utterances[number]) for number in self._lines)

    def groups(self) -> list[dict[int, str]]:
        """Return the numbered lines in groups that fit one prompt."""
        numbered = list(self._lines.items())
        return [dict(group) for group in batches(numbered, MAX_LINES, MAX_CHARACTERS)]

    def utterances_of(self, group: dict[int, str]) -> list[Utterance]:
        """Return the utterances of a group."""
        return [self.utterances[number] for number in group]

    def earlier(self, group: dict[int, str]) -> list[Utterance]:
        """Return the utterances before a group."""
        first = min(group)
        before = [one for number, one in self.utterances.items() if number < first]
        return [*self._context, *before][-_CONTEXT_LINES:]

    def before(self, group: dict[int, str]) -> list[str]:
        """Return the utterances before a group as lines that give no facts."""
        texts = [(one, _visible_text(one)) for one in self.earlier(group)]
        return [utterance_line(0, one, text, context=True) for one, text in texts if text]


def _visible_text(one: Utterance) -> str:
    """Return what a model sees of an utterance: people's own words, and nothing of tools."""
    if is_person(one):
        return own_words(one.text)
    return own_words(one.text) if one.role == "assistant" else ""


def _language(texts: Sequence[str]) -> Language:
    return "zh" if any("\u4e00" <= char <= "\u9fff" for text in texts for char in text) else "en"


def _entities(answer: RelationsAnswer, relations: Sequence[Relation]) -> dict[str, Entity]:
    """Return the entities that the relations connect, with the types from the model."""
    types = {fold_name(end_name(one.name)): one.type for one in answer.entities}
    types[USER] = "person"
    names = [name for one in relations for name in (one.source, one.destination)]
    entities: dict[str, Entity] = {}
    for name in names:
        kind = types.get(fold_name(name), "")
        entities[fold_name(name)] = Entity(name, kind if kind in ENTITY_TYPES else "thing")  # type: ignore[arg-type]
    return entities
