CREATE TABLE memberships (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  member VARCHAR(64) COLLATE "C" NOT NULL,
  role VARCHAR(50) NOT NULL,
  name VARCHAR(255),
  granted_by VARCHAR(64) COLLATE "C",
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  PRIMARY KEY (user_id, member),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);

CREATE INDEX ix_memberships_member ON memberships (member);

ALTER TABLE messages ADD COLUMN author VARCHAR(64) COLLATE "C";

ALTER TABLE memories ADD COLUMN author VARCHAR(64) COLLATE "C";
