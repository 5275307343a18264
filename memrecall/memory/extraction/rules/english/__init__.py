"""The rules for English."""
