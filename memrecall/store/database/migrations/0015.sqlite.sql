ALTER TABLE sessions ADD COLUMN import_label TEXT;

ALTER TABLE tombstones ADD COLUMN import_label TEXT;

ALTER TABLE messages ADD COLUMN import_label TEXT;

ALTER TABLE memories ADD COLUMN import_label TEXT;

ALTER TABLE revisions ADD COLUMN import_label TEXT;

ALTER TABLE entities ADD COLUMN import_label TEXT;

ALTER TABLE aliases ADD COLUMN import_label TEXT;

ALTER TABLE relations ADD COLUMN import_label TEXT;

ALTER TABLE summaries ADD COLUMN import_label TEXT;

ALTER TABLE checkpoints ADD COLUMN import_label TEXT;

ALTER TABLE feedback ADD COLUMN import_label TEXT;

ALTER TABLE memberships ADD COLUMN import_label TEXT;
