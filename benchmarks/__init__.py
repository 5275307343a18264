"""Benchmarks of memrecall and other libraries. Run `python benchmarks/search.py --help`."""
