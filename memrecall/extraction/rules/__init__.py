"""Extraction by rules, in Chinese and English."""

from memrecall.extraction.rules.extractor import RuleExtractor

__all__ = ["RuleExtractor"]
