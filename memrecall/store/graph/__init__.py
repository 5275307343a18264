"""Entities and their relations."""
