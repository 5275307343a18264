"""Importers of message files, one module per format."""
