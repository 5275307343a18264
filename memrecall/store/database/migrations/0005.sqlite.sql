CREATE TABLE knowledge_bases (
  agent_id VARCHAR(64) NOT NULL,
  version BIGINT NOT NULL,
  epoch VARCHAR(32) NOT NULL,
  PRIMARY KEY (agent_id),
  FOREIGN KEY(agent_id) REFERENCES agents (agent_id)
);

CREATE TABLE restores (
  restore_id VARCHAR(64) NOT NULL,
  agent_id VARCHAR(64) NOT NULL,
  decided_at DATETIME NOT NULL,
  PRIMARY KEY (restore_id)
);

ALTER TABLE knowledge ADD COLUMN tags JSON DEFAULT '[]' NOT NULL;

ALTER TABLE knowledge ADD COLUMN search_text TEXT DEFAULT '' NOT NULL;

ALTER TABLE knowledge ADD COLUMN change_no BIGINT DEFAULT 0 NOT NULL;

ALTER TABLE knowledge ADD COLUMN model VARCHAR(255);

ALTER TABLE knowledge ADD COLUMN vector BLOB;

CREATE INDEX ix_knowledge_change ON knowledge (agent_id, change_no);
