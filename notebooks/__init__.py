"""Notebooks that are run by a test, and what runs them."""
