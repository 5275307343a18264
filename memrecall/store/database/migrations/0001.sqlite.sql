CREATE TABLE agents (
  agent_id VARCHAR(64) NOT NULL,
  agent_name VARCHAR(255) NOT NULL,
  agent_type VARCHAR(50),
  description TEXT,
  config JSON,
  status SMALLINT DEFAULT 1 NOT NULL,
  create_time DATETIME DEFAULT CURRENT_TIMESTAMP NOT NULL,
  update_time DATETIME DEFAULT CURRENT_TIMESTAMP NOT NULL,
  creator VARCHAR(64),
  PRIMARY KEY (agent_id)
);

CREATE INDEX ix_agents_create_time ON agents (create_time);

CREATE INDEX ix_agents_status ON agents (status);

CREATE TABLE memrecall_meta (
  name VARCHAR(50) NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (name)
);

CREATE TABLE users (
  user_id VARCHAR(64) NOT NULL,
  agent_id VARCHAR(64) NOT NULL,
  user_name VARCHAR(255),
  user_type VARCHAR(50),
  profile JSON,
  time_zone VARCHAR(64) DEFAULT 'UTC' NOT NULL,
  status SMALLINT DEFAULT 1 NOT NULL,
  create_time DATETIME DEFAULT CURRENT_TIMESTAMP NOT NULL,
  update_time DATETIME DEFAULT CURRENT_TIMESTAMP NOT NULL,
  last_active_time DATETIME,
  version BIGINT DEFAULT 0 NOT NULL,
  epoch VARCHAR(32) NOT NULL,
  PRIMARY KEY (user_id),
  FOREIGN KEY(agent_id) REFERENCES agents (agent_id)
);

CREATE INDEX ix_users_agent ON users (agent_id);

CREATE INDEX ix_users_agent_status ON users (agent_id, status);

CREATE INDEX ix_users_last_active_time ON users (last_active_time);

CREATE TABLE sessions (
  user_id VARCHAR(64) NOT NULL,
  session_id VARCHAR(64) NOT NULL,
  agent_id VARCHAR(64) NOT NULL,
  session_name VARCHAR(255),
  session_type VARCHAR(50),
  context JSON,
  status SMALLINT DEFAULT 1 NOT NULL,
  create_time DATETIME DEFAULT CURRENT_TIMESTAMP NOT NULL,
  update_time DATETIME DEFAULT CURRENT_TIMESTAMP NOT NULL,
  end_time DATETIME,
  last_sequence_no BIGINT DEFAULT 0 NOT NULL,
  last_create_time DATETIME,
  PRIMARY KEY (user_id, session_id),
  FOREIGN KEY(user_id) REFERENCES users (user_id),
  FOREIGN KEY(agent_id) REFERENCES agents (agent_id)
);

CREATE INDEX ix_sessions_agent_user ON sessions (agent_id, user_id);

CREATE INDEX ix_sessions_create_time ON sessions (create_time);

CREATE INDEX ix_sessions_status_create_time ON sessions (status, create_time);

CREATE TABLE vectors (
  user_id VARCHAR(64) NOT NULL,
  kind VARCHAR(20) NOT NULL,
  "key" VARCHAR(64) NOT NULL,
  model VARCHAR(255) NOT NULL,
  dimensions INTEGER NOT NULL,
  vector BLOB NOT NULL,
  change_no BIGINT NOT NULL,
  PRIMARY KEY (user_id, kind, "key"),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);

CREATE INDEX ix_vectors_change ON vectors (user_id, change_no);

CREATE TABLE memories (
  user_id VARCHAR(64) NOT NULL,
  memory_key VARCHAR(64) NOT NULL,
  agent_id VARCHAR(64) NOT NULL,
  session_id VARCHAR(64),
  summary TEXT DEFAULT '' NOT NULL,
  content TEXT NOT NULL,
  memory_type VARCHAR(50) DEFAULT 'general' NOT NULL,
  layer VARCHAR(10) DEFAULT 'long' NOT NULL,
  keywords JSON NOT NULL,
  metadata JSON NOT NULL,
  sensitive BOOLEAN NOT NULL,
  valid_from DATETIME,
  valid_to DATETIME,
  source_message_ids JSON NOT NULL,
  provenance JSON NOT NULL,
  truncated BOOLEAN NOT NULL,
  created_at DATETIME NOT NULL,
  updated_at DATETIME NOT NULL,
  deleted_at DATETIME,
  search_text TEXT NOT NULL,
  change_no BIGINT NOT NULL,
  PRIMARY KEY (user_id, memory_key),
  FOREIGN KEY(user_id, session_id) REFERENCES sessions (user_id, session_id),
  FOREIGN KEY(user_id) REFERENCES users (user_id),
  FOREIGN KEY(agent_id) REFERENCES agents (agent_id)
);

CREATE INDEX ix_memories_change ON memories (user_id, change_no);

CREATE INDEX ix_memories_created_at ON memories (user_id, created_at);

CREATE TABLE messages (
  user_id VARCHAR(64) NOT NULL,
  message_id VARCHAR(64) NOT NULL,
  agent_id VARCHAR(64) NOT NULL,
  session_id VARCHAR(64) NOT NULL,
  role VARCHAR(20) NOT NULL,
  speaker VARCHAR(255),
  content TEXT NOT NULL,
  content_type VARCHAR(50) DEFAULT 'text' NOT NULL,
  metadata JSON,
  parent_message_id VARCHAR(64),
  ts DATETIME NOT NULL,
  create_time DATETIME DEFAULT CURRENT_TIMESTAMP NOT NULL,
  sequence_no BIGINT NOT NULL,
  search_text TEXT NOT NULL,
  change_no BIGINT NOT NULL,
  PRIMARY KEY (user_id, message_id),
  FOREIGN KEY(user_id) REFERENCES users (user_id),
  FOREIGN KEY(user_id, session_id) REFERENCES sessions (user_id, session_id),
  CONSTRAINT uk_messages_create_time UNIQUE (user_id, agent_id, session_id, create_time),
  CONSTRAINT uk_messages_sequence UNIQUE (user_id, session_id, sequence_no),
  FOREIGN KEY(agent_id) REFERENCES agents (agent_id)
);

CREATE INDEX ix_messages_change ON messages (user_id, change_no);

CREATE INDEX ix_messages_create_time ON messages (create_time);

CREATE INDEX ix_messages_session_create_time ON messages (user_id, session_id, create_time);

CREATE INDEX ix_messages_ts ON messages (user_id, ts DESC, message_id);

CREATE INDEX ix_messages_user_create_time ON messages (user_id, create_time);
