CREATE TABLE audit_log (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  entry_id VARCHAR(64) COLLATE "C" NOT NULL,
  agent_id VARCHAR(64) COLLATE "C",
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  actor TEXT NOT NULL,
  action VARCHAR(50) NOT NULL,
  target VARCHAR(64) COLLATE "C",
  count INTEGER NOT NULL,
  PRIMARY KEY (user_id, entry_id),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);
