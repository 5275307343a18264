"""Measurements of memrecall beside its peers. Run `python benchmarks/search.py --help`."""
