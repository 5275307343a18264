"""Extraction by rules, in Chinese and English: a small engine over the files in `tables/`."""
