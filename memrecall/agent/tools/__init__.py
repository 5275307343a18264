"""Tools: argument and result models, handlers, and the table that all interfaces render."""

# The names that code refers to, for the table and for readers of transcripts.
SEARCH = "search_memories"
DETAIL = "get_memory_detail"
KEYWORDS = "extract_search_keywords"
EXPANSION = "expand_context_window"
HANDOFF = "handoff"

RECALL = "recall"

RECALL_MEMORY = "recall_memory"
OTHER_MESSAGES = "get_other_members_messages"
IS_MENTIONED = "is_mentioned"
