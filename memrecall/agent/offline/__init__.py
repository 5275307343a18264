"""Rules that recall when no model is configured, and that judge whether a recall is needed."""
