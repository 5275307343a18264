"""Time expressions of Chinese and English text: 上周三, 三天前, "since last May"."""

from memrecall.text.times.parser import TimeGrain, TimeSpan, find_times, parse_period

__all__ = ["TimeGrain", "TimeSpan", "find_times", "parse_period"]
