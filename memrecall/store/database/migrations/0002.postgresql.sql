CREATE TABLE traces (
  user_id VARCHAR(64) COLLATE "C" NOT NULL,
  trace_id VARCHAR(64) COLLATE "C" NOT NULL,
  agent_id VARCHAR(64) COLLATE "C" NOT NULL,
  session_id VARCHAR(64) COLLATE "C",
  created_at TIMESTAMP WITH TIME ZONE NOT NULL,
  query TEXT NOT NULL,
  stop_reason VARCHAR(50) NOT NULL,
  confidence DOUBLE PRECISION NOT NULL,
  abstained BOOLEAN NOT NULL,
  iterations INTEGER NOT NULL,
  model_calls INTEGER NOT NULL,
  tool_calls INTEGER NOT NULL,
  seconds DOUBLE PRECISION NOT NULL,
  body JSON NOT NULL,
  PRIMARY KEY (user_id, trace_id),
  FOREIGN KEY(user_id) REFERENCES users (user_id),
  FOREIGN KEY(agent_id) REFERENCES agents (agent_id)
);

CREATE INDEX ix_traces_created_at ON traces (user_id, created_at DESC, trace_id);

CREATE INDEX ix_messages_session_ts ON messages (user_id, session_id, ts, sequence_no);
