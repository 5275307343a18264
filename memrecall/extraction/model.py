"""The extractor that asks a model, with the rules as its fallback."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, tzinfo
from typing import TypeVar

from pydantic import BaseModel

from memrecall.embedding.base import TextEmbedder
from memrecall.extraction import verify, wire
from memrecall.extraction.evidence import visible_text
from memrecall.extraction.protocol import (
    USER,
    By,
    Decided,
    Entity,
    Extracted,
    Fact,
    KnownMemory,
    Related,
    Relation,
    Summary,
    Utterance,
    text_length,
)
from memrecall.extraction.quotations import is_person
from memrecall.extraction.rules.extractor import RuleExtractor
from memrecall.extraction.sentences import claimed_statements
from memrecall.extraction.signature import end_name
from memrecall.extraction.summaries import shorten
from memrecall.model import protocol
from memrecall.model.structured import Structured, ask_prompt
from memrecall.text.language import language_of
from memrecall.text.normalize import entity_key
from memrecall.types import Language
from memrecall.workers import in_process

T = TypeVar("T", bound=BaseModel)
SECONDS = 60.0
MAX_LINES = 40
MAX_CHARACTERS = 12_000
_CONTEXT_LINES = 6
_MAX_KNOWN = 60
_LONGEST_QUOTED = 120
_UNRELATED = "it has nothing to do with the messages that it names"


class ModelExtractor:
    """Reads conversations with a model, and checks each reply against the conversation.

    A reply that is not JSON is repaired or requested once more; then the rules answer, and the
    result says so in `by` and `problem`. Facts that no person stated are dropped. With an
    `embedder`, so are those that mean something else than the messages that they name.
    """

    def __init__(
        self,
        client: protocol.ChatCompletionClient,
        *,
        seconds: float = SECONDS,
        embedder: TextEmbedder | None = None,
    ) -> None:
        self._client = client
        self._seconds = seconds
        self._embedder = embedder
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
        stated = await in_process(text_length(*utterances), claimed_statements, utterances)
        claims = list((await self._rules.facts(stated, now=now, zone=zone)).facts)
        if not conversation.has_speech:
            return Extracted((), "model", claims=tuple(claims))
        facts: list[Fact] = []
        problems: list[str] = []
        dropped: list[str] = []
        groups = list(conversation.groups())
        for group in groups:
            setting = wire.setting_line(now, zone, prompt)
            lines = [setting, *conversation.before(group), *group.values()]
            reply = await self._ask("extract_facts", conversation.language, lines, wire.FactsAnswer)
            visible = conversation.utterances_of(group)
            earlier = conversation.earlier(group)
            if reply.value is None:
                problems.append(reply.problem)
                fallback = await self._rules.facts(
                    list(visible.values()), now=now, zone=zone, context=earlier
                )
                facts += fallback.facts
            else:
                checked: list[Fact] = []
                for item in reply.value.facts:
                    fact = verify.check_fact(item, visible, now, zone=zone, context=earlier)
                    if isinstance(fact, Fact):
                        checked.append(fact)
                        continue
                    dropped.append(_describe_dropped(item.text, fact))
                    claim = verify.check_claim(item, visible, now, zone=zone)
                    claims += [claim] if claim else []
                messages = [*earlier, *visible.values()]
                split = await verify.split_inventions(checked, messages, self._embedder)
                facts += split[0]
                dropped += [_describe_dropped(fact.text, _UNRELATED) for fact in split[1]]
        by, problem = _describe(problems, len(groups))
        unique = dict.fromkeys
        return Extracted(
            tuple(unique(facts)), by, problem, tuple(unique(claims)), tuple(unique(dropped))
        )

    async def decide(self, facts: Sequence[Fact], known: Sequence[KnownMemory]) -> Decided:
        """Return what to do for each fact; the model is not asked about facts known verbatim."""
        by_rules = await self._rules.decide(facts, known)
        undecided = verify.undecided_facts(facts, by_rules.decisions)
        if not undecided or not known:
            return by_rules
        visible = list(known[:_MAX_KNOWN])
        lines = [wire.known_line(number, memory) for number, memory in enumerate(visible, 1)]
        lines += [wire.fact_line(number, facts[number]) for number in undecided]
        language = language_of(" ".join(fact.text for fact in facts))
        reply = await self._ask("decide", language, lines, wire.DecisionsAnswer)
        if reply.value is None:
            return Decided(by_rules.decisions, "rules", reply.problem)
        verdicts = reply.value.decisions
        decisions = verify.merge_verdicts(facts, visible, verdicts, by_rules.decisions)
        return Decided(decisions, "model")

    async def relations(self, utterances: Sequence[Utterance], *, now: datetime) -> Related:
        """Return the entities that the utterances name, and their relations."""
        conversation = _PromptConversation(utterances, ())
        entities: dict[str, Entity] = {}
        relations: list[Relation] = []
        problems: list[str] = []
        groups = list(conversation.groups()) if conversation.has_speech else []
        for group in groups:
            lines = [wire.setting_line(now, UTC, None), *group.values()]
            language = conversation.language
            reply = await self._ask("extract_relations", language, lines, wire.RelationsAnswer)
            visible = conversation.utterances_of(group)
            if reply.value is None:
                problems.append(reply.problem)
                fallback = await self._rules.relations(list(visible.values()), now=now)
                relations += fallback.relations
                new = {entity_key(entity.name): entity for entity in fallback.entities}
            else:
                valid = verify.check_relations(reply.value.relations, visible, now)
                relations += valid
                new = _entities(reply.value, valid)
            entities = {**new, **entities}
        by, problem = _describe(problems, len(groups))
        return Related(tuple(entities.values()), tuple(dict.fromkeys(relations)), by, problem)

    async def summarise(
        self, lines: str | Sequence[Utterance | str], limit_characters: int
    ) -> Summary:
        """Return a summary by the model; one that is too long is cut after a sentence."""
        messages = [lines] if isinstance(lines, str) else lines
        texts = [item if isinstance(item, str) else item.text for item in messages]
        if not any(text.strip() for text in texts) or limit_characters <= 0:
            return Summary("", by="rules")
        prompt_lines = [wire.to_line({"limit": limit_characters})]
        prompt_lines += [
            wire.to_line({"text": item})
            if isinstance(item, str)
            else wire.utterance_line(number, item, item.text)
            for number, item in enumerate(messages, 1)
        ]
        language = language_of(" ".join(texts))
        reply = await self._ask("summarise", language, prompt_lines, wire.SummaryAnswer)
        if reply.value is None or not reply.value.summary:
            by_rules = await self._rules.summarise(lines, limit_characters)
            return Summary(by_rules.text, "rules", reply.problem or "the summary is empty")
        return Summary(shorten(reply.value.summary, limit_characters), "model")

    async def _ask(
        self, prompt: str, language: Language, lines: Sequence[str], answer: type[T]
    ) -> Structured[T]:
        return await ask_prompt(
            self._client, prompt, language, lines, answer, seconds=self._seconds
        )


class _PromptConversation:
    """A conversation as a model sees it: numbered, with people's own words only."""

    def __init__(self, utterances: Sequence[Utterance], context: Sequence[Utterance]) -> None:
        self.utterances = dict(enumerate(utterances, 1))
        self._context = list(context)[-_CONTEXT_LINES:]
        self._lines = {
            number: wire.utterance_line(number, utterance, text)
            for number, utterance in self.utterances.items()
            if (text := visible_text(utterance))
        }
        self.language = language_of(" ".join(utterance.text for utterance in utterances))

    @property
    def has_speech(self) -> bool:
        return any(is_person(self.utterances[number]) for number in self._lines)

    def groups(self) -> Iterator[dict[int, str]]:
        """Yield the numbered lines in groups that fit one prompt."""
        group: dict[int, str] = {}
        size = 0
        for number, line in self._lines.items():
            if group and (len(group) >= MAX_LINES or size + len(line) > MAX_CHARACTERS):
                yield group
                group, size = {}, 0
            group[number] = line
            size += len(line)
        if group:
            yield group

    def utterances_of(self, group: dict[int, str]) -> dict[int, Utterance]:
        return {number: self.utterances[number] for number in group}

    def earlier(self, group: dict[int, str]) -> list[Utterance]:
        before = list(self.utterances.values())[: min(group) - 1]
        return [*self._context, *before][-_CONTEXT_LINES:]

    def before(self, group: dict[int, str]) -> list[str]:
        """Return the utterances before a group as lines that give no facts."""
        return [
            wire.utterance_line(0, utterance, text, context=True)
            for utterance in self.earlier(group)
            if (text := visible_text(utterance))
        ]


def _describe_dropped(text: str, reason: str) -> str:
    return f"memories: {text[:_LONGEST_QUOTED]!r} is not stored: {reason}"


def _describe(problems: Sequence[str], parts: int) -> tuple[By, str]:
    """Return who read a conversation of several parts, and what went wrong."""
    if not problems:
        return "model", ""
    details = "; ".join(dict.fromkeys(problems))
    if len(problems) == parts:
        return "rules", details
    return "model", f"{len(problems)} of {parts} parts were read by rules: {details}"


def _entities(answer: wire.RelationsAnswer, relations: Sequence[Relation]) -> dict[str, Entity]:
    """Return the entities that the relations connect, with the types from the model."""
    types = {entity_key(end_name(item.name)): item.type for item in answer.entities}
    types[USER] = "person"
    names = [name for relation in relations for name in (relation.source, relation.destination)]
    entities: dict[str, Entity] = {}
    for name in names:
        kind = types.get(entity_key(name), "")
        entities[entity_key(name)] = Entity(name, kind if kind in verify.ENTITY_TYPES else "thing")  # type: ignore[arg-type]
    return entities
