"""Results as applications of mem0 know them, with what memrecall knows besides."""

from datetime import datetime
from typing import Any

from memrecall.search import Hit
from memrecall.store import Outcome, Revision
from memrecall.types import MemoryRecord, Message, format_time


def _time(moment: datetime | None) -> str | None:
    return None if moment is None else format_time(moment)


def memory_item(record: MemoryRecord) -> dict[str, Any]:
    """A memory."""
    return {
        "id": record.memory_key,
        "memory": record.content,
        "kind": "memory",
        "user_id": record.user_id,
        "agent_id": record.agent_id,
        "session_id": record.session_id,
        "run_id": record.session_id,
        "metadata": record.metadata,
        "memory_type": record.memory_type,
        "layer": record.layer,
        "summary": record.summary,
        "keywords": [keyword.keyword for keyword in record.keywords],
        "subject": record.subject,
        "speaker": record.speaker,
        "field": record.field,
        "sensitive": record.sensitive,
        "pinned": record.pinned,
        "origin": record.provenance.origin.value,
        "actor": record.provenance.actor,
        "source_message_ids": list(record.source_message_ids),
        "valid_from": _time(record.valid_from),
        "valid_to": _time(record.valid_to),
        "expires_at": _time(record.expires_at),
        "supersedes": record.supersedes,
        "superseded_by": record.superseded_by,
        "superseded_reason": record.superseded_reason,
        "created_at": format_time(record.created_at),
        "updated_at": format_time(record.updated_at),
    }


def message_item(message: Message) -> dict[str, Any]:
    """A message, in the same shape."""
    return {
        "id": message.message_id,
        "memory": message.content,
        "kind": "message",
        "role": message.role.value,
        "user_id": message.user_id,
        "agent_id": message.agent_id,
        "session_id": message.session_id,
        "run_id": message.session_id,
        "metadata": message.metadata,
        "memory_type": "message",
        "speaker": message.speaker,
        "created_at": format_time(message.ts),
        "updated_at": format_time(message.create_time),
    }


def hit_item(hit: Hit, record: MemoryRecord | None, user_id: str) -> dict[str, Any]:
    """Something that a search found."""
    if record is not None:
        item = memory_item(record)
    else:
        item = {
            "id": hit.key,
            "memory": hit.content,
            "kind": hit.kind,
            "role": hit.role,
            "user_id": user_id,
            "session_id": hit.session_id,
            "run_id": hit.session_id,
            "metadata": hit.metadata,
            "memory_type": hit.memory_type,
            "speaker": hit.speaker,
            "created_at": format_time(hit.ts),
        }
    return {**item, "score": hit.score, "probability": hit.probability}


def outcome_item(outcome: Outcome) -> dict[str, Any]:
    """What a write did."""
    item: dict[str, Any] = {
        "id": outcome.memory_key,
        "memory": outcome.text,
        "event": outcome.event,
    }
    if outcome.previous_key is not None:
        item["previous_id"] = outcome.previous_key
        item["previous_memory"] = outcome.previous_text
    if outcome.reason:
        item["reason"] = outcome.reason
    return item


def revision_item(revision: Revision) -> dict[str, Any]:
    """One step of a history."""
    return {
        "id": f"{revision.memory_key}#{revision.number}",
        "memory_id": revision.memory_key,
        "old_memory": revision.old_text,
        "new_memory": revision.new_text,
        "event": revision.event,
        "created_at": format_time(revision.at),
        "actor_id": revision.actor,
        "reason": revision.reason,
        "other_id": revision.other_key,
        "undone": revision.undone,
        "is_deleted": revision.event == "DELETE" and not revision.undone,
    }
