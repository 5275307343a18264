"""Extraction by rules, in Chinese and English."""

from memrecall.memory.extraction.rules.extractor import RuleExtractor

__all__ = ["RuleExtractor"]
