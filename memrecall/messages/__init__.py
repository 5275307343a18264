"""The messages that applications pass in, in whatever form they have them."""

from memrecall.messages.parser import (
    LARGEST_BATCH,
    PICTURES,
    ROLE_NAMES,
    USER_SOURCES,
    ConversationMessage,
    MessageContent,
    is_from_user,
    join_content_parts,
    name_source,
    name_sources,
    origin_of,
    parse_items,
    parse_message,
    parse_messages,
    parse_new_messages,
    parse_role,
)

__all__ = [
    "LARGEST_BATCH",
    "PICTURES",
    "ROLE_NAMES",
    "USER_SOURCES",
    "ConversationMessage",
    "MessageContent",
    "is_from_user",
    "join_content_parts",
    "name_source",
    "name_sources",
    "origin_of",
    "parse_items",
    "parse_message",
    "parse_messages",
    "parse_new_messages",
    "parse_role",
]
