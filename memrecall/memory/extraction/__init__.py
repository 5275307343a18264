"""From conversation to facts, decisions, relations and summaries: by a model or by rules."""

from memrecall.memory.extraction.facts import (
    RETRACTION,
    USER,
    Decided,
    Decision,
    Entity,
    Extracted,
    Fact,
    Known,
    Related,
    Relation,
    Summary,
    Utterance,
)
from memrecall.memory.extraction.model import ModelExtractor
from memrecall.memory.extraction.names import aliases_in, fold_name, may_be_one
from memrecall.memory.extraction.offline import EXTRACTION_RULES, offline_client
from memrecall.memory.extraction.protocol import Extractor
from memrecall.memory.extraction.rules import RuleExtractor

__all__ = [
    "EXTRACTION_RULES",
    "RETRACTION",
    "USER",
    "Decided",
    "Decision",
    "Entity",
    "Extracted",
    "Extractor",
    "Fact",
    "Known",
    "ModelExtractor",
    "Related",
    "Relation",
    "RuleExtractor",
    "Summary",
    "Utterance",
    "aliases_in",
    "fold_name",
    "may_be_one",
    "offline_client",
]
