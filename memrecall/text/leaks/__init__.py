"""A streaming filter that hides tool calls which models write as text.

`formats.py` and `channels.py` are the tables of formats, `engine.py` the scanner that applies it.
"""

from memrecall.text.leaks.filter import LeakFilter, filter_leaks
from memrecall.text.leaks.matchers import LeakMode, Reasoning, check_modes
from memrecall.text.leaks.reports import Filtered, Leak

__all__ = [
    "Filtered",
    "Leak",
    "LeakFilter",
    "LeakMode",
    "Reasoning",
    "check_modes",
    "filter_leaks",
]
