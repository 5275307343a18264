ALTER TABLE memories ADD COLUMN subject VARCHAR(255);

ALTER TABLE memories ADD COLUMN speaker VARCHAR(255);

ALTER TABLE memories ADD COLUMN field VARCHAR(50);

ALTER TABLE memories ADD COLUMN pinned BOOLEAN DEFAULT false NOT NULL;

ALTER TABLE memories ADD COLUMN expires_at TIMESTAMP WITH TIME ZONE;

ALTER TABLE memories ADD COLUMN supersedes VARCHAR(64) COLLATE "C";

ALTER TABLE memories ADD COLUMN superseded_by VARCHAR(64) COLLATE "C";

ALTER TABLE memories ADD COLUMN superseded_reason TEXT;

ALTER TABLE memories ADD COLUMN last_recalled_at TIMESTAMP WITH TIME ZONE;

CREATE INDEX ix_memories_field ON memories (user_id, subject, field);

CREATE INDEX ix_memories_key ON memories (memory_key);

CREATE TABLE revisions (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  memory_key VARCHAR(64) COLLATE "C" NOT NULL,
  number INTEGER NOT NULL,
  event VARCHAR(50) NOT NULL,
  old_text TEXT,
  new_text TEXT,
  other_key VARCHAR(64) COLLATE "C",
  reason TEXT NOT NULL,
  actor TEXT NOT NULL,
  at TIMESTAMP WITH TIME ZONE NOT NULL,
  before JSON NOT NULL,
  undone BOOLEAN NOT NULL,
  PRIMARY KEY (user_id, memory_key, number),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);

CREATE INDEX ix_revisions_other ON revisions (user_id, other_key);

CREATE TABLE aliases (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  agent_id VARCHAR(64) COLLATE "C" NOT NULL,
  alias VARCHAR(255) NOT NULL,
  name VARCHAR(255) NOT NULL,
  entity_id VARCHAR(64) COLLATE "C" NOT NULL,
  session_id VARCHAR(64) COLLATE "C",
  PRIMARY KEY (user_id, agent_id, alias),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);

CREATE INDEX ix_aliases_entity ON aliases (user_id, entity_id);

CREATE INDEX ix_aliases_alias ON aliases (user_id, alias);

CREATE TABLE relations (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  relation_id VARCHAR(64) COLLATE "C" NOT NULL,
  agent_id VARCHAR(64) COLLATE "C" NOT NULL,
  session_id VARCHAR(64) COLLATE "C",
  source_id VARCHAR(64) COLLATE "C" NOT NULL,
  relationship VARCHAR(255) NOT NULL,
  destination_id VARCHAR(64) COLLATE "C" NOT NULL,
  valid_from TIMESTAMP WITH TIME ZONE,
  valid_to TIMESTAMP WITH TIME ZONE,
  source_message_ids JSON NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  PRIMARY KEY (user_id, relation_id),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);

CREATE INDEX ix_relations_destination ON relations (user_id, destination_id);

CREATE INDEX ix_relations_source ON relations (user_id, source_id);

CREATE TABLE entities (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  entity_id VARCHAR(64) COLLATE "C" NOT NULL,
  agent_id VARCHAR(64) COLLATE "C" NOT NULL,
  name VARCHAR(255) NOT NULL,
  type VARCHAR(50) NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  PRIMARY KEY (user_id, entity_id),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);

CREATE TABLE summaries (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  agent_id VARCHAR(64) COLLATE "C" NOT NULL,
  session_id VARCHAR(64) COLLATE "C" NOT NULL,
  level SMALLINT NOT NULL,
  number INTEGER NOT NULL,
  first_sequence_no BIGINT NOT NULL,
  last_sequence_no BIGINT NOT NULL,
  text TEXT NOT NULL,
  made_by VARCHAR(50) NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  PRIMARY KEY (user_id, agent_id, session_id, level, number),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);

CREATE TABLE checkpoints (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  agent_id VARCHAR(64) COLLATE "C" NOT NULL,
  session_id VARCHAR(64) COLLATE "C" NOT NULL,
  number INTEGER NOT NULL,
  state JSON NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  PRIMARY KEY (user_id, agent_id, session_id, number),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);

CREATE TABLE knowledge (
  agent_id VARCHAR(64) COLLATE "C" NOT NULL,
  knowledge_key VARCHAR(64) COLLATE "C" NOT NULL,
  content TEXT NOT NULL,
  summary TEXT NOT NULL,
  metadata JSON NOT NULL,
  actor TEXT NOT NULL,
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  updated_at TIMESTAMP WITH TIME ZONE NOT NULL,
  deleted_at TIMESTAMP WITH TIME ZONE,
  PRIMARY KEY (agent_id, knowledge_key),
  FOREIGN KEY(agent_id) REFERENCES agents (agent_id)
);
