ALTER TABLE aliases ADD COLUMN source_message_ids JSON DEFAULT '[]' NOT NULL;

ALTER TABLE relations ADD COLUMN source_alias VARCHAR(255);

ALTER TABLE relations ADD COLUMN destination_alias VARCHAR(255);
