"""A streaming filter that hides tool calls which models write as text.

`formats.py` has the tables of formats, `catalog.py` compiles them for a set of tools, `filter.py`
applies them to a text.
"""

from memrecall.text.leaks.calls import Filtered, Leak
from memrecall.text.leaks.catalog import LeakMode, Reasoning, check_modes
from memrecall.text.leaks.filter import LeakFilter, filter_leaks

__all__ = [
    "Filtered",
    "Leak",
    "LeakFilter",
    "LeakMode",
    "Reasoning",
    "check_modes",
    "filter_leaks",
]
