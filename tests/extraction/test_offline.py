"""The offline client: the prompts of extraction answered by the rules."""

from datetime import UTC

from memrecall.extraction import (
    EXTRACTION_RULES,
    Fact,
    Known,
    ModelExtractor,
    RuleExtractor,
    offline_client,
)
from tests.cases import check_each_async

from .conversations import CONVERSATIONS
from .modelling import PARIS
from .talking import NOW, Conversation


def test_every_prompt_of_extraction_has_a_rule() -> None:
    assert set(EXTRACTION_RULES) == {"extract_facts", "decide", "extract_relations", "summarise"}


async def test_the_offline_client_answers_as_the_rules_do() -> None:
    async def check(case: Conversation) -> None:
        _, said, _ = case
        asked, rules = ModelExtractor(offline_client()), RuleExtractor()
        found = await asked.facts(said, now=NOW, zone=UTC)
        by_rules = await rules.facts(said, now=NOW, zone=UTC)
        assert found.by == "rules"  # no model was asked, and the result does not claim one
        assert [bare(fact) for fact in found.facts] == [bare(fact) for fact in by_rules.facts]
        known = [PARIS, Known("k2", "用户住在北京。", "user", "home", "user_profile")]
        decided = await asked.decide(by_rules.facts, known)
        assert [(one.event, one.memory_key) for one in decided.decisions] == [
            (one.event, one.memory_key)
            for one in (await rules.decide(by_rules.facts, known)).decisions
        ]
        related = await asked.relations(said, now=NOW)
        assert related.relations == (await rules.relations(said, now=NOW)).relations
        assert (await asked.summarise(said, 80)).text == (await rules.summarise(said, 80)).text

    await check_each_async(CONVERSATIONS, check, lambda case: case[1][0].text[:60])


def bare(fact: Fact) -> Fact:
    """A fact without its keywords, which are read from the finished sentence here."""
    return Fact(
        fact.text,
        fact.subject,
        fact.memory_type,
        fact.field,
        fact.source_ids,
        fact.valid_from,
        fact.negated,
    )
