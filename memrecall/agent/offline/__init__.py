"""Recalls without a model, and whether a message needs a recall."""
