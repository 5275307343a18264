CREATE TABLE api_keys (
  key_id VARCHAR(64) COLLATE "C" NOT NULL,
  name VARCHAR(255) DEFAULT '' NOT NULL,
  secret_hash VARCHAR(64) NOT NULL,
  all_users BOOLEAN NOT NULL,
  agent_id VARCHAR(64) COLLATE "C",
  read_only BOOLEAN NOT NULL,
  permissions JSON NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  expires_at TIMESTAMP WITH TIME ZONE,
  revoked_at TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (key_id)
);

CREATE TABLE api_key_users (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  key_id VARCHAR(64) COLLATE "C" NOT NULL,
  PRIMARY KEY (user_id, key_id),
  FOREIGN KEY(key_id) REFERENCES api_keys (key_id)
);

CREATE INDEX ix_api_key_users_key ON api_key_users (key_id);
