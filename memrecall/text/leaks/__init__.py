"""Tool calls that models write as text, kept from the reader of a stream.

`formats.py` is the table of forms, `filter.py` the engine that reads a text by it.
"""

from memrecall.text.leaks.filter import LeakFilter, filter_leaks
from memrecall.text.leaks.reports import Filtered, Leak

__all__ = ["Filtered", "Leak", "LeakFilter", "filter_leaks"]
