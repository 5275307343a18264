ALTER TABLE messages ADD COLUMN deleted_at TIMESTAMP WITH TIME ZONE;

CREATE INDEX ix_messages_deleted ON messages (user_id, message_id) WHERE deleted_at IS NOT NULL;

ALTER TABLE aliases ADD COLUMN hidden BOOLEAN DEFAULT false NOT NULL;

CREATE TABLE tombstones (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  kind VARCHAR(20) NOT NULL,
  key VARCHAR(64) COLLATE "C" NOT NULL,
  change_no BIGINT NOT NULL,
  PRIMARY KEY (user_id, kind, key),
  FOREIGN KEY(user_id) REFERENCES users (user_id)
);

CREATE INDEX ix_tombstones_change ON tombstones (user_id, change_no);
