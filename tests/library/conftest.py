"""Databases that are emptied after a test, not made anew for each."""

from tests.store.recycling import databases, recycled, sqlite_template

__all__ = ["databases", "recycled", "sqlite_template"]
