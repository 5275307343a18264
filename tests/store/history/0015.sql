INSERT INTO agents (agent_id, agent_name, agent_type, description, config, status, create_time, update_time, creator)
VALUES ('helper', 'The helper', 'chatbot', 'Helps', '{"model": "m"}', 1, '2025-12-31 08:00:00.000000', '2025-12-31 08:00:00.000000', 'ops');

INSERT INTO users (user_id, agent_id, user_name, user_type, profile, time_zone, status, create_time, update_time, last_active_time, version, epoch)
VALUES ('ann', 'helper', 'Ann 安', 'individual', '{"city": "北京"}', 'Asia/Shanghai', 1, '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000', '2026-01-26 10:47:00.000001', 6, '0123456789abcdef');

INSERT INTO users (user_id, agent_id, status, create_time, update_time, version, epoch)
VALUES ('ben', 'helper', 0, '2026-01-01 00:00:00.000000', '2026-01-01 00:00:00.000000', 1, 'fedcba9876543210');

INSERT INTO sessions (user_id, session_id, agent_id, session_name, session_type, context, status, create_time, update_time, last_sequence_no, last_create_time)
VALUES ('ann', 'open', 'helper', 'Tea', 'chat', '{"topic": "tea"}', 1, '2026-01-26 10:00:00.000000', '2026-01-26 10:00:00.000000', 2, '2026-01-26 10:47:00.000001');

INSERT INTO sessions (user_id, session_id, agent_id, status, create_time, update_time, end_time, last_sequence_no, last_create_time)
VALUES ('ann', 'closed', 'helper', 0, '2026-01-25 10:00:00.000000', '2026-01-25 10:00:00.000000', '2026-01-25 11:00:00.000000', 1, '2026-01-25 10:30:00.000000');

INSERT INTO sessions (user_id, session_id, agent_id, status, create_time, update_time, last_sequence_no, last_create_time)
VALUES ('ben', 'open', 'helper', 1, '2026-01-25 10:00:00.000000', '2026-01-25 10:00:00.000000', 1, '2026-01-25 10:30:00.000000');

INSERT INTO messages (user_id, message_id, agent_id, session_id, role, speaker, content, content_type, metadata, parent_message_id, ts, create_time, sequence_no, search_text, change_no, extracted_by)
VALUES ('ann', 'm1', 'helper', 'open', 'user', 'Ann', '我不喝咖啡 ☕', 'text', '{"tokens": 7, "nested": {"list": [1, null, true]}}', NULL, '2026-01-26 10:46:00.123456', '2026-01-26 10:47:00.000000', 1, '咖 啡 咖啡', 1, 'job_x0000000000001');

INSERT INTO messages (user_id, message_id, agent_id, session_id, role, content, content_type, metadata, parent_message_id, ts, create_time, sequence_no, search_text, change_no)
VALUES ('ann', 'm2', 'helper', 'open', 'assistant', 'Noted.', 'text', NULL, 'm1', '2026-01-26 10:46:00.123456', '2026-01-26 10:47:00.000001', 2, 'note', 2);

INSERT INTO messages (user_id, message_id, agent_id, session_id, role, content, content_type, ts, create_time, sequence_no, search_text, change_no, project)
VALUES ('ann', 'm3', 'helper', 'closed', 'user', 'a photo of a cat', 'image', '2026-01-25 10:29:00.000000', '2026-01-25 10:30:00.000000', 1, 'photo cat', 3, 'github.com/ann/tea');

INSERT INTO messages (user_id, message_id, agent_id, session_id, role, content, ts, create_time, sequence_no, search_text, change_no)
VALUES ('ben', 'm1', 'helper', 'open', 'user', 'mine', '2026-01-25 10:29:00.000000', '2026-01-25 10:30:00.000000', 1, 'mine', 1);

INSERT INTO memories (user_id, memory_key, agent_id, session_id, summary, content, memory_type, layer, keywords, metadata, sensitive, valid_from, valid_to, source_message_ids, provenance, truncated, created_at, updated_at, deleted_at, search_text, change_no)
VALUES ('ann', 'drinks', 'helper', 'open', 'No coffee', 'Ann drinks no coffee', 'preference', 'long', '[{"keyword": "coffee", "weight": 0.5}]', '{"by": "hand"}', FALSE, '2026-01-26 00:00:00.000000', NULL, '["m1"]', '{"origin": "user", "actor": "ops", "session_id": "open", "time": "2026-01-26T10:48:00Z", "sha256": "00"}', FALSE, '2026-01-26 10:48:00.000000', '2026-01-26 10:48:00.000000', NULL, 'coffee', 4);

INSERT INTO memories (user_id, memory_key, agent_id, summary, content, memory_type, layer, keywords, metadata, sensitive, source_message_ids, provenance, truncated, created_at, updated_at, search_text, change_no, project)
VALUES ('ann', 'secret', 'helper', '', 'the door code', 'general', 'short', '[]', '{}', TRUE, '[]', '{"origin": "import", "actor": "ops", "session_id": null, "time": "2026-01-26T10:48:00Z", "sha256": "01"}', TRUE, '2026-01-26 10:49:00.000000', '2026-01-26 10:49:00.000000', 'door code', 5, 'github.com/ann/tea');

INSERT INTO vectors (user_id, kind, "key", model, dimensions, vector, change_no)
VALUES ('ann', 'message', 'm1', 'embedder-1', 2, BYTES'003c0040', 6);

INSERT INTO traces (user_id, trace_id, agent_id, session_id, created_at, query, stop_reason, confidence, abstained, iterations, model_calls, tool_calls, seconds, body, model)
VALUES ('ann', 't1', 'helper', 'unwritten', '2026-01-26 10:50:00.000001', '我喝什么？', 'handoff', 0.75, FALSE, 2, 3, 4, 1.5, '{"events": [{"kind": "search", "query": "咖啡"}]}', 'tiny');

INSERT INTO traces (user_id, trace_id, agent_id, created_at, query, stop_reason, confidence, abstained, iterations, model_calls, tool_calls, seconds, body, project)
VALUES ('ann', 't2', 'helper', '2026-01-26 10:51:00.000000', 'and my dog?', 'timeout', 0.0, TRUE, 1, 0, 0, 30.0, '{}', 'github.com/ann/tea');

INSERT INTO api_keys (key_id, name, secret_hash, all_users, agent_id, read_only, permissions, created_at, expires_at, revoked_at)
VALUES ('0011223344556677', 'Ann''s 手机', '6ca13d52ca70c883e0f0bb101e425a89e8624de51db2d2392593af6a84118090', false, 'helper', true, '["sensitive"]', '2026-01-26 10:00:00.000000', '2999-01-01 00:00:00.000000', NULL);

INSERT INTO api_key_users (user_id, key_id) VALUES ('ann', '0011223344556677');

INSERT INTO api_keys (key_id, name, secret_hash, all_users, agent_id, read_only, permissions, created_at, expires_at, revoked_at)
VALUES ('8899aabbccddeeff', '', '6ca13d52ca70c883e0f0bb101e425a89e8624de51db2d2392593af6a84118090', true, NULL, false, '[]', '2026-01-26 10:00:00.000000', NULL, '2026-01-26 11:00:00.000000');

INSERT INTO memories (user_id, memory_key, agent_id, summary, content, memory_type, layer, keywords, metadata, sensitive, source_message_ids, provenance, truncated, created_at, updated_at, search_text, change_no, subject, field, pinned, valid_to, superseded_by, superseded_reason)
VALUES ('ann', 'home', 'helper', '', 'Paris', 'user_profile', 'long', '[]', '{}', FALSE, '[]', '{"origin": "user", "actor": "ops", "session_id": null, "time": "2026-01-26T10:48:00Z", "sha256": "02"}', FALSE, '2026-01-26 10:49:00.000000', '2026-01-26 10:49:00.000000', 'paris', 6, 'user', 'home', TRUE, '2026-02-01 00:00:00.000000', 'rome', 'she moved');

INSERT INTO memories (user_id, memory_key, agent_id, summary, content, memory_type, layer, keywords, metadata, sensitive, source_message_ids, provenance, truncated, created_at, updated_at, search_text, change_no, subject, field, pinned, supersedes)
VALUES ('ann', 'rome', 'helper', '', 'Rome', 'user_profile', 'long', '[]', '{}', FALSE, '[]', '{"origin": "user", "actor": "ops", "session_id": null, "time": "2026-01-26T10:48:00Z", "sha256": "02"}', FALSE, '2026-01-26 10:49:00.000000', '2026-01-26 10:49:00.000000', 'rome', 6, 'user', 'home', FALSE, 'home');

INSERT INTO revisions (user_id, memory_key, number, event, old_text, new_text, other_key, reason, actor, at, before, undone, run)
VALUES ('ann', 'home', 1, 'UPDATE', 'Paris', 'Paris', 'rome', 'she moved', 'extraction', '2026-02-01 00:00:00.000000', '{"valid_to": null, "superseded_by": null, "superseded_reason": null}', FALSE, 'job_x0000000000001');

INSERT INTO entities (user_id, entity_id, agent_id, name, type, created_at)
VALUES ('ann', 'en1', 'helper', 'Ann', 'person', '2026-02-01 00:00:00.000000');

INSERT INTO entities (user_id, entity_id, agent_id, name, type, created_at)
VALUES ('ann', 'en2', 'helper', '罗马', 'place', '2026-02-01 00:00:00.000000');

INSERT INTO aliases (user_id, agent_id, alias, name, entity_id, session_id) VALUES ('ann', 'helper', 'ann', 'Ann', 'en1', 'open');

INSERT INTO aliases (user_id, agent_id, alias, name, entity_id, session_id, source_message_ids) VALUES ('ann', 'helper', '安', '安', 'en1', NULL, '["m1"]');

INSERT INTO aliases (user_id, agent_id, alias, name, entity_id, session_id) VALUES ('ann', 'helper', '罗马', '罗马', 'en2', NULL);

INSERT INTO relations (user_id, relation_id, agent_id, session_id, source_id, relationship, destination_id, valid_from, valid_to, source_message_ids, created_at, source_alias, destination_alias, import_label)
VALUES ('ann', 're1', 'helper', 'open', 'en1', 'lives_in', 'en2', '2026-02-01 00:00:00.000000', NULL, '["m1"]', '2026-02-01 00:00:00.000000', '安', '罗马', 'imp_65a0b1c2d3e4f memrecall ann.jsonl');

INSERT INTO summaries (user_id, agent_id, session_id, level, number, first_sequence_no, last_sequence_no, text, made_by, created_at)
VALUES ('ann', 'helper', 'open', 0, 1, 1, 2, '茶 and coffee', 'rules', '2026-02-01 00:00:00.000000');

INSERT INTO checkpoints (user_id, agent_id, session_id, number, state, created_at)
VALUES ('ann', 'helper', 'open', 1, '{"items": [], "scratch": {"步": 1}}', '2026-02-01 00:00:00.000000');

INSERT INTO knowledge_bases (agent_id, version, epoch) VALUES ('helper', 4, 'fedcba9876543210');

INSERT INTO restores (restore_id, agent_id, decided_at) VALUES ('re1', 'helper', '2026-02-01 00:00:00.000000');

INSERT INTO knowledge (agent_id, knowledge_key, content, summary, metadata, actor, created_at, updated_at, deleted_at, tags, search_text, change_no, model, vector)
VALUES ('helper', 'dose', '三次一天', '', '{}', 'ops', '2026-02-01 00:00:00.000000', '2026-02-01 00:00:00.000000', NULL, '["药"]', '三 次 一 天 药', 4, 'embedder-1', BYTES'003c0040');

INSERT INTO counters (resolution, bucket, name, label, count, total) VALUES
 (60, '2026-01-02 03:04:00.000000', 'searches', 'lexical', 3, 0.5);

INSERT INTO messages (user_id, message_id, agent_id, session_id, role, content, ts, create_time, sequence_no, search_text, change_no, deleted_at)
VALUES ('ann', 'hidden', 'helper', 'closed', 'user', 'my old address', '2026-01-25 10:29:00.000000', '2026-01-25 10:29:30.000000', 0, 'old address', 2, '2026-01-26 10:49:00.000000');

INSERT INTO tombstones (user_id, kind, "key", change_no) VALUES ('ann', 'message', 'erased', 3);

INSERT INTO audit_log (user_id, entry_id, agent_id, at, actor, action, target, "count")
VALUES ('ann', 'au_1', 'helper', '2026-01-26 10:50:00.000000', 'key k1', 'delete_message', 'erased', 1);

INSERT INTO feedback (user_id, trace_id, agent_id, query, asked_at, is_right, evidence, in_evaluation, actor, updated_at)
VALUES ('ann', 't1', 'helper', '我喝什么？', '2026-01-26 10:50:00.000001', FALSE, '["m1"]', TRUE, 'key 0011', '2026-01-26 10:55:00.000000');

INSERT INTO users (user_id, agent_id, user_name, user_type, profile, status, create_time, update_time, version, epoch)
VALUES ('space:team', 'helper', 'Team 队', 'space', '{"description": "plans"}', 1, '2026-02-01 00:00:00.000000', '2026-02-01 00:00:00.000000', 1, '00112233aabbccdd');

INSERT INTO memberships (user_id, member, role, name, granted_by, created_at) VALUES
 ('space:team', 'ann', 'admin', 'Ann', NULL, '2026-02-01 00:00:00.000000');


INSERT INTO messages (user_id, message_id, agent_id, session_id, role, content, ts, create_time, sequence_no, search_text, change_no, deleted_at, deletion)
VALUES ('ann', 'deleted', 'helper', 'closed', 'user', 'my old phone', '2026-01-25 10:29:00.000000', '2026-01-25 10:29:30.000001', -1, 'old phone', 2, '2026-01-26 10:49:00.000000', '[]');

INSERT INTO messages (user_id, message_id, agent_id, session_id, role, content, ts, create_time, sequence_no, search_text, change_no, expires_at)
VALUES ('ann', 'expired', 'helper', 'closed', 'user', 'my parcel', '2026-01-25 10:29:00.000000', '2026-01-25 10:29:30.000002', -2, 'parcel', 2, '2026-01-26 10:49:00.000000');
