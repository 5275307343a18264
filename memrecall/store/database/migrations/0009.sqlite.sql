CREATE TABLE audit_log (
  user_id VARCHAR(64) NOT NULL,
  entry_id VARCHAR(64) NOT NULL,
  agent_id VARCHAR(64),
  at DATETIME NOT NULL,
  actor TEXT NOT NULL,
  action VARCHAR(50) NOT NULL,
  target VARCHAR(64),
  "count" INTEGER NOT NULL,
  PRIMARY KEY (user_id, entry_id),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);

ALTER TABLE traces ADD COLUMN model VARCHAR(255) DEFAULT '' NOT NULL;

UPDATE traces SET model = coalesce(substr(json_extract(body, '$.model'), 1, 255), '');

CREATE INDEX ix_traces_latest ON traces (created_at, user_id, trace_id);

CREATE INDEX ix_traces_confidence ON traces (confidence, user_id, trace_id);

CREATE INDEX ix_traces_seconds ON traces (seconds, user_id, trace_id);

CREATE TABLE feedback (
  user_id VARCHAR(64) NOT NULL,
  trace_id VARCHAR(64) NOT NULL,
  agent_id VARCHAR(64) NOT NULL,
  query TEXT NOT NULL,
  asked_at DATETIME NOT NULL,
  is_right BOOLEAN NOT NULL,
  evidence JSON NOT NULL,
  in_evaluation BOOLEAN NOT NULL,
  actor TEXT NOT NULL,
  updated_at DATETIME NOT NULL,
  PRIMARY KEY (user_id, trace_id),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);
