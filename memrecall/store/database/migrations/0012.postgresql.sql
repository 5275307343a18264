ALTER TABLE messages ADD COLUMN expires_at TIMESTAMP WITH TIME ZONE;

ALTER TABLE messages ADD COLUMN deletion JSON;

CREATE INDEX ix_memories_expires ON memories (user_id, expires_at) WHERE expires_at IS NOT NULL;

UPDATE messages SET expires_at = expiring.at
FROM (
  SELECT memories.user_id AS user_id, source.value AS message_id, min(memories.expires_at) AS at
  FROM memories, json_array_elements_text(memories.source_message_ids) AS source (value)
  WHERE memories.expires_at IS NOT NULL AND memories.deleted_at IS NULL
  GROUP BY memories.user_id, source.value
) AS expiring
WHERE messages.user_id = expiring.user_id AND messages.message_id = expiring.message_id;
