"""From conversation to facts, decisions, relations and summaries: by a model or by rules."""
