"""Backups: file format, folder and restore."""
