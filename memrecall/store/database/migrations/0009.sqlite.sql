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
