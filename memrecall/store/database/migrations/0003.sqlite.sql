CREATE TABLE api_keys (
  key_id VARCHAR(64) NOT NULL,
  name VARCHAR(255) DEFAULT '' NOT NULL,
  secret_hash VARCHAR(64) NOT NULL,
  all_users BOOLEAN NOT NULL,
  agent_id VARCHAR(64),
  read_only BOOLEAN NOT NULL,
  permissions JSON NOT NULL,
  created_at DATETIME NOT NULL,
  expires_at DATETIME,
  revoked_at DATETIME,
  PRIMARY KEY (key_id)
);

CREATE TABLE api_key_users (
  user_id VARCHAR(64) NOT NULL,
  key_id VARCHAR(64) NOT NULL,
  PRIMARY KEY (user_id, key_id),
  FOREIGN KEY(key_id) REFERENCES api_keys (key_id)
);

CREATE INDEX ix_api_key_users_key ON api_key_users (key_id);
