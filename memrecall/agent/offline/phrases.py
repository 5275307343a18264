"""Texts of the rules in English and Chinese: thoughts, summaries and questions."""

from functools import partial
from pathlib import Path

from memrecall.text.language import fill_phrase, read_phrases

_PHRASES = read_phrases(Path(__file__).with_name("phrases.json"))


explain = partial(fill_phrase, _PHRASES)
