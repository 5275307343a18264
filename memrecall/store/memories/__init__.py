"""Memories, their changes and their history."""
