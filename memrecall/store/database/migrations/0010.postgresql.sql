ALTER TABLE messages ADD COLUMN project VARCHAR(255);

ALTER TABLE memories ADD COLUMN project VARCHAR(255);

ALTER TABLE traces ADD COLUMN project VARCHAR(255);

UPDATE messages SET project = substr(metadata ->> 'workspace', 1, 255)
  WHERE json_typeof(metadata -> 'workspace') = 'string' AND metadata ->> 'workspace' <> '';

UPDATE memories SET project = substr(metadata ->> 'workspace', 1, 255)
  WHERE json_typeof(metadata -> 'workspace') = 'string' AND metadata ->> 'workspace' <> ''
  AND memory_type NOT IN ('user_profile', 'user_preference', 'relationship', 'habit');

CREATE INDEX ix_messages_project ON messages (user_id, project, ts);

CREATE INDEX ix_memories_project ON memories (user_id, project, created_at);
