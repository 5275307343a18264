"""The offline client: the prompts of extraction answered by the rules."""

from datetime import UTC

from memrecall.extraction import Fact, KnownMemory, ModelExtractor, RuleExtractor
from memrecall.extraction.offline import EXTRACTION_RULES, offline_client
from tests.cases import check_each_async

from .conversations import CONVERSATIONS
from .helpers import PARIS
from .transcripts import NOW, Conversation


def test_every_extraction_prompt_has_a_rule() -> None:
    assert set(EXTRACTION_RULES) == {"extract_facts", "decide", "extract_relations", "summarise"}


async def test_offline_client_gives_results_of_rules() -> None:
    async def check(case: Conversation) -> None:
        _, messages, _ = case
        extractor, rules = ModelExtractor(offline_client()), RuleExtractor()
        result = await extractor.facts(messages, now=NOW, zone=UTC)
        by_rules = await rules.facts(messages, now=NOW, zone=UTC)
        assert result.by == "rules"  # the rules answered, so the result does not name a model
        assert [without_keywords(fact) for fact in result.facts] == [
            without_keywords(fact) for fact in by_rules.facts
        ]
        known = [PARIS, KnownMemory("k2", "用户住在北京。", "user", "home", "user_profile")]
        decisions = await extractor.decide(by_rules.facts, known)
        assert [(item.event, item.memory_key) for item in decisions.decisions] == [
            (item.event, item.memory_key)
            for item in (await rules.decide(by_rules.facts, known)).decisions
        ]
        related = await extractor.relations(messages, now=NOW)
        assert related.relations == (await rules.relations(messages, now=NOW)).relations
        assert (await extractor.summarise(messages, 80)).text == (
            await rules.summarise(messages, 80)
        ).text

    await check_each_async(CONVERSATIONS, check, lambda case: case[1][0].text[:60])


def without_keywords(fact: Fact) -> Fact:
    """Return a fact without its keywords, which the client reads from the finished sentence."""
    return Fact(
        fact.text,
        fact.subject,
        fact.memory_type,
        fact.field,
        fact.source_ids,
        fact.valid_from,
        fact.negated,
    )
