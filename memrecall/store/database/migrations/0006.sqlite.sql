CREATE TABLE counters (
  resolution INTEGER NOT NULL,
  bucket DATETIME NOT NULL,
  name VARCHAR(50) NOT NULL,
  label VARCHAR(64) NOT NULL,
  count BIGINT NOT NULL,
  total DOUBLE NOT NULL,
  PRIMARY KEY (resolution, bucket, name, label)
);

CREATE INDEX ix_memories_session ON memories (user_id, session_id, created_at);
