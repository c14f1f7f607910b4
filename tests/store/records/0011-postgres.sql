-- A record of revision 0011, sealed with SEAL_KEYS of tests/harness/records.py: its schema.sql, then its rows.

-- The schema, stated once: a new record is made from this file; migrations only bring older records up to it.
-- Written in the part of SQL that SQLite and PostgreSQL share.
--
-- Times are text (`2026-11-15T12:00:00.000Z`): readable in any shell, sortable, and hashed as they stand. JSON is text
-- too, so that both dialects store the same bytes.

CREATE TABLE projects (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL,
    name TEXT COLLATE "C" NOT NULL,
    -- As the last client declared its machine, so that absolute paths can be judged while none is connected.
    workspace TEXT COLLATE "C",
    isolation TEXT COLLATE "C",
    created_at TEXT COLLATE "C" NOT NULL
);
CREATE INDEX ix_projects_user_id ON projects (user_id, created_at);

-- One row a project, locked by whoever writes: commit order is sequence order, so a reader who has seen N never misses
-- an event that commits later with a smaller number.
CREATE TABLE feeds (
    project_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES projects (id),
    seq BIGINT NOT NULL,
    audit_seq BIGINT NOT NULL,
    audit_hash TEXT COLLATE "C" NOT NULL,
    audit_seal TEXT COLLATE "C" NOT NULL DEFAULT ''  -- HMAC of number and hash of the last record
);

-- HMAC of all projects' heads together: a project that was deleted leaves no chain to miss it in, and one that alone was
-- made what it was has an older head than the others.
CREATE TABLE seals (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    value TEXT COLLATE "C" NOT NULL,
    seal TEXT COLLATE "C" NOT NULL
);

CREATE TABLE events (
    project_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    kind TEXT COLLATE "C" NOT NULL,
    target TEXT COLLATE "C",  -- the one client it is for; null: everybody who watches
    ref TEXT COLLATE "C",  -- the execution a signal carries; its parameters are joined in on delivery
    payload TEXT COLLATE "C" NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (project_id, seq)
);

CREATE TABLE audit (
    project_id TEXT COLLATE "C" NOT NULL,
    seq BIGINT NOT NULL,
    at TEXT COLLATE "C" NOT NULL,
    actor TEXT COLLATE "C" NOT NULL,
    action TEXT COLLATE "C" NOT NULL,
    execution_id TEXT COLLATE "C",
    approval_id TEXT COLLATE "C",
    detail TEXT COLLATE "C" NOT NULL,
    previous_hash TEXT COLLATE "C" NOT NULL,
    hash TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (project_id, seq)
);

CREATE TABLE sessions (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    user_id TEXT COLLATE "C" NOT NULL,
    title TEXT COLLATE "C" NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL
);
CREATE INDEX ix_sessions_project_id ON sessions (project_id, created_at);

CREATE TABLE runs (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    user_id TEXT COLLATE "C" NOT NULL,
    agent TEXT COLLATE "C" NOT NULL DEFAULT 'chat',
    mode TEXT COLLATE "C" NOT NULL,
    state TEXT COLLATE "C" NOT NULL,
    prompt TEXT COLLATE "C" NOT NULL,
    history TEXT COLLATE "C",  -- what the agent's framework needs to resume; null before the first step
    owner TEXT COLLATE "C",
    lease_until TEXT COLLATE "C",
    fence BIGINT NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT COLLATE "C",
    position BIGINT NOT NULL,  -- order within the session
    created_at TEXT COLLATE "C" NOT NULL,
    updated_at TEXT COLLATE "C" NOT NULL,
    UNIQUE (session_id, position)
);
CREATE INDEX ix_runs_open ON runs (state, lease_until) WHERE state IN ('READY', 'RUNNING', 'WAITING');
-- The next run, and whether its session has an earlier one: asked each time a worker looks.
CREATE INDEX ix_runs_ready ON runs (created_at, id) WHERE state = 'READY';
CREATE INDEX ix_runs_order ON runs (session_id, position) WHERE state IN ('READY', 'RUNNING', 'WAITING');

CREATE TABLE messages (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    project_id TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    run_id TEXT COLLATE "C",
    role TEXT COLLATE "C" NOT NULL,
    content TEXT COLLATE "C" NOT NULL,
    position BIGINT NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    UNIQUE (session_id, position)
);
CREATE INDEX ix_messages_project ON messages (project_id, id);

-- The sender's own key of a message, so that one whose answer was lost is not stored twice.
CREATE TABLE message_keys (
    project_id TEXT COLLATE "C" NOT NULL,
    user_id TEXT COLLATE "C" NOT NULL,
    client_key TEXT COLLATE "C" NOT NULL,
    digest TEXT COLLATE "C" NOT NULL,  -- of what was sent
    session_id TEXT COLLATE "C",  -- as it was sent; null asked for a new one
    message_id TEXT COLLATE "C" NOT NULL REFERENCES messages (id),
    PRIMARY KEY (project_id, user_id, client_key)
);

-- Sign-outs: the cookies of these sign-ins, and copies of them, are refused.
CREATE TABLE ended_sign_ins (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL,
    ended_at TEXT COLLATE "C" NOT NULL,
    good_until TEXT COLLATE "C" NOT NULL  -- when the last of its cookies ends by itself
);
CREATE INDEX ix_ended_sign_ins_good_until ON ended_sign_ins (good_until);

CREATE TABLE approvals (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C",
    agent_id TEXT COLLATE "C",
    tool_name TEXT COLLATE "C" NOT NULL,
    tool_params TEXT COLLATE "C" NOT NULL,  -- as shown
    digest TEXT COLLATE "C" NOT NULL,
    risk_level TEXT COLLATE "C" NOT NULL,
    findings TEXT COLLATE "C" NOT NULL,
    network BOOLEAN NOT NULL,
    description TEXT COLLATE "C" NOT NULL,
    status TEXT COLLATE "C" NOT NULL,
    timeout_seconds INTEGER NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    deadline TEXT COLLATE "C" NOT NULL,
    decided_at TEXT COLLATE "C",
    decided_by TEXT COLLATE "C",
    reason TEXT COLLATE "C",
    scope TEXT COLLATE "C",
    inspection TEXT COLLATE "C",  -- files that would run or be replaced, as the machine saw them
    suggestions TEXT COLLATE "C",  -- rules an answer could save
    unseen TEXT COLLATE "C",  -- changes it named that nobody had seen; null where no code of the workspace would run
    grant_id TEXT COLLATE "C",  -- saved with the answer, or what answered
    decided_from TEXT COLLATE "C"  -- where a person answered
);
CREATE INDEX ix_approvals_pending ON approvals (user_id, created_at) WHERE status = 'pending';
CREATE INDEX ix_approvals_deadline ON approvals (deadline) WHERE status = 'pending';
CREATE INDEX ix_approvals_project ON approvals (project_id, id);
CREATE INDEX ix_approvals_session_digest ON approvals (session_id, digest);
-- A person's newest refusals in a session, which never ends: looked at for each call that would ask.
CREATE INDEX ix_approvals_rejected ON approvals (session_id, decided_at) WHERE status = 'rejected';
CREATE INDEX ix_approvals_shown ON approvals (project_id, created_at) WHERE unseen IS NOT NULL AND status = 'approved';

CREATE TABLE replaced_texts (
    approval_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL,
    size INTEGER NOT NULL,
    text TEXT COLLATE "C" NOT NULL,  -- what the write would replace, secrets masked
    created_at TEXT COLLATE "C" NOT NULL
);
CREATE INDEX ix_replaced_texts_user ON replaced_texts (user_id, size);
CREATE INDEX ix_replaced_texts_created ON replaced_texts (created_at);

CREATE TABLE tool_executions (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL,
    session_id TEXT COLLATE "C" NOT NULL,
    run_id TEXT COLLATE "C",
    agent_id TEXT COLLATE "C",
    mode TEXT COLLATE "C" NOT NULL,
    approval_id TEXT COLLATE "C",
    client_id TEXT COLLATE "C",
    tool_name TEXT COLLATE "C" NOT NULL,
    tool_params TEXT COLLATE "C" NOT NULL,  -- secrets masked
    true_params TEXT COLLATE "C",  -- what the client gets; dropped when the execution ends
    digest TEXT COLLATE "C" NOT NULL,  -- what is approved: the call, and the files it is bound to
    request_digest TEXT COLLATE "C",  -- the call alone; null where nothing is bound
    bound TEXT COLLATE "C",
    result TEXT COLLATE "C",
    result_hash TEXT COLLATE "C",
    risk_level TEXT COLLATE "C" NOT NULL,
    requires_approval BOOLEAN NOT NULL,
    findings TEXT COLLATE "C" NOT NULL,
    network BOOLEAN NOT NULL,
    approved_by TEXT COLLATE "C",
    status TEXT COLLATE "C" NOT NULL,
    error TEXT COLLATE "C",
    error_type TEXT COLLATE "C",
    execution_time_ms BIGINT,
    timeout_seconds INTEGER NOT NULL,
    deadline TEXT COLLATE "C",
    output_seq INTEGER NOT NULL,
    cancel_requested BOOLEAN NOT NULL,
    created_at TEXT COLLATE "C" NOT NULL,
    approved_at TEXT COLLATE "C",
    started_at TEXT COLLATE "C",
    completed_at TEXT COLLATE "C"
);
CREATE INDEX ix_tool_executions_project ON tool_executions (project_id, id);
CREATE INDEX ix_tool_executions_user ON tool_executions (user_id, created_at, id);
CREATE INDEX ix_tool_executions_approval ON tool_executions (approval_id);
CREATE INDEX ix_tool_executions_run ON tool_executions (run_id);
-- Calls that may have changed something; reads are many, and not in it.
CREATE INDEX ix_tool_executions_changes ON tool_executions (project_id, tool_name, approved_at)
    WHERE risk_level <> 'LOW';
-- Those of them that no person was asked about.
CREATE INDEX ix_tool_executions_unasked ON tool_executions (project_id, tool_name, approved_at)
    WHERE risk_level <> 'LOW' AND substr(approved_by, 1, 7) <> 'person:';
CREATE INDEX ix_tool_executions_deadline ON tool_executions (deadline)
    WHERE status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING');
CREATE INDEX ix_tool_executions_open ON tool_executions (project_id, status)
    WHERE status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING');

CREATE TABLE grants (
    id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    user_id TEXT COLLATE "C" NOT NULL,
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    session_id TEXT COLLATE "C" NOT NULL REFERENCES sessions (id),
    scope TEXT COLLATE "C" NOT NULL,
    rule TEXT COLLATE "C",  -- null: everything in the session
    text TEXT COLLATE "C" NOT NULL,  -- as it was shown
    in_chat BOOLEAN NOT NULL,  -- the chat's own agent asked; a call from elsewhere that names the session is another's
    approval_id TEXT COLLATE "C",
    uses INTEGER NOT NULL,
    max_uses INTEGER,
    created_at TEXT COLLATE "C" NOT NULL,
    created_by TEXT COLLATE "C" NOT NULL,
    expires_at TEXT COLLATE "C" NOT NULL,
    revoked_at TEXT COLLATE "C",
    revoked_by TEXT COLLATE "C"
);
CREATE INDEX ix_grants_user ON grants (user_id, created_at);
CREATE INDEX ix_grants_session ON grants (session_id) WHERE revoked_at IS NULL;

-- The rules a machine's owner wrote, as its client declared them last.
CREATE TABLE machines (
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    client_id TEXT COLLATE "C" NOT NULL,
    policy TEXT COLLATE "C" NOT NULL,
    declared_at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (project_id, client_id)
);

-- The tokens each client has connected with: its reports are taken with no other.
CREATE TABLE client_tokens (
    project_id TEXT COLLATE "C" NOT NULL REFERENCES projects (id),
    client_id TEXT COLLATE "C" NOT NULL,
    token TEXT COLLATE "C" NOT NULL,  -- its digest; or key: and that of the client's key
    seen_at TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (project_id, client_id, token)
);

-- Alembic's own: which migration this record has.
CREATE TABLE alembic_version (version_num TEXT COLLATE "C" NOT NULL PRIMARY KEY);

CREATE TABLE server_lease (
    name TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner TEXT COLLATE "C" NOT NULL,
    place TEXT COLLATE "C" NOT NULL,
    commits BIGINT NOT NULL,
    until TIMESTAMPTZ NOT NULL
);

INSERT INTO projects (id, user_id, name, workspace, isolation, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 'alice', 'demo', NULL, NULL, '2026-01-01T00:00:00.000Z');
INSERT INTO projects (id, user_id, name, workspace, isolation, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 'bob', 'bücher', NULL, NULL, '2026-01-01T00:03:00.000Z');
INSERT INTO feeds (project_id, seq, audit_seq, audit_hash, audit_seal) VALUES ('proj_04019261f5300fd691244000223022e8', 10, 7, '38b46523f6702615e25c86358786fd7586ebbd5c353244f6403c58cf7df0c6f3', 'dabb4546571d603648f8cd9de4e264aed4c861f23e9b9e0bd0ad3f70a007e89d');
INSERT INTO feeds (project_id, seq, audit_seq, audit_hash, audit_seal) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 10, 7, '4bac292b818278e2be25f81c16f351cb17f8aaa9d26fc5cba73184eb2a8f1131', '2d3132fa88291215be0857f01cb7aedbe6ebd3d3d380545354ae0af24b83310e');
INSERT INTO seals (name, value, seal) VALUES ('heads', '156347b3b99e669123f6b3bec71a9a0a229e1bc9ab85f2418e0a4bdc2780ff9c', 'd8a82ebc34d05da195e5d3c94942062c7d6dec7a8f938e4e9e1b9ff688c5681b');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 1, 'tool.started', NULL, NULL, '{"timestamp":"2026-01-01T00:01:00.000Z","kind":"tool.started","tool_id":"exec_78cfadd8b91f886d92dbbd8b0ec304ca","tool_name":"read_file","tool_params":{"path":"a.txt"},"risk_level":"LOW","session_id":"sess_f48cc992f4d6f3d89da449750c3b1280","run_id":null,"approved_by":"risk:LOW"}', '2026-01-01T00:01:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 2, 'tool.execution_signal', 'c1', 'exec_78cfadd8b91f886d92dbbd8b0ec304ca', '{"timestamp":"2026-01-01T00:01:00.000Z","kind":"tool.execution_signal","tool_id":"exec_78cfadd8b91f886d92dbbd8b0ec304ca","tool_name":"read_file","digest":"11d7a05c2ddd7ed39bfd086c48f2c552ca3429bd81eccaa65f6accbd91f21756","risk_level":"LOW","approval_id":null,"approved_by":"risk:LOW","bound":{},"mode":"sandbox","network":false,"deadline":"2026-01-01T00:02:00.000Z","client_id":"c1","session_id":"sess_f48cc992f4d6f3d89da449750c3b1280","traceparent":null}', '2026-01-01T00:01:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 3, 'tool.result_ack', NULL, NULL, '{"timestamp":"2026-01-01T00:01:00.000Z","kind":"tool.result_ack","tool_id":"exec_78cfadd8b91f886d92dbbd8b0ec304ca","status":"completed","session_id":"sess_f48cc992f4d6f3d89da449750c3b1280"}', '2026-01-01T00:01:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 4, 'tool.finished', NULL, NULL,  E'{"timestamp":"2026-01-01T00:01:00.000Z","kind":"tool.finished","tool_id":"exec_78cfadd8b91f886d92dbbd8b0ec304ca","tool_name":"read_file","status":"completed","result":{"success":true,"content":"it''s 0\\\\n"},"result_shortened":false,"error":null,"error_type":null,"execution_time_ms":0,"session_id":"sess_f48cc992f4d6f3d89da449750c3b1280","run_id":null,"approved_by":"risk:LOW"}', '2026-01-01T00:01:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 5, 'tool.started', NULL, NULL, '{"timestamp":"2026-01-01T00:02:00.000Z","kind":"tool.started","tool_id":"exec_8a3a31f79b0b896689fe874e16c8726d","tool_name":"read_file","tool_params":{"path":"a.txt"},"risk_level":"LOW","session_id":"sess_f48cc992f4d6f3d89da449750c3b1280","run_id":null,"approved_by":"risk:LOW"}', '2026-01-01T00:02:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 6, 'tool.execution_signal', 'c1', 'exec_8a3a31f79b0b896689fe874e16c8726d', '{"timestamp":"2026-01-01T00:02:00.000Z","kind":"tool.execution_signal","tool_id":"exec_8a3a31f79b0b896689fe874e16c8726d","tool_name":"read_file","digest":"11d7a05c2ddd7ed39bfd086c48f2c552ca3429bd81eccaa65f6accbd91f21756","risk_level":"LOW","approval_id":null,"approved_by":"risk:LOW","bound":{},"mode":"sandbox","network":false,"deadline":"2026-01-01T00:03:00.000Z","client_id":"c1","session_id":"sess_f48cc992f4d6f3d89da449750c3b1280","traceparent":null}', '2026-01-01T00:02:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 7, 'tool.result_ack', NULL, NULL, '{"timestamp":"2026-01-01T00:02:00.000Z","kind":"tool.result_ack","tool_id":"exec_8a3a31f79b0b896689fe874e16c8726d","status":"completed","session_id":"sess_f48cc992f4d6f3d89da449750c3b1280"}', '2026-01-01T00:02:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 8, 'tool.finished', NULL, NULL,  E'{"timestamp":"2026-01-01T00:02:00.000Z","kind":"tool.finished","tool_id":"exec_8a3a31f79b0b896689fe874e16c8726d","tool_name":"read_file","status":"completed","result":{"success":true,"content":"it''s 1\\\\n"},"result_shortened":false,"error":null,"error_type":null,"execution_time_ms":0,"session_id":"sess_f48cc992f4d6f3d89da449750c3b1280","run_id":null,"approved_by":"risk:LOW"}', '2026-01-01T00:02:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 9, 'tool.started', NULL, NULL, '{"timestamp":"2026-01-01T00:03:00.000Z","kind":"tool.started","tool_id":"exec_5868afaaa8ef49d964971d30eb353146","tool_name":"read_file","tool_params":{"path":"a.txt"},"risk_level":"LOW","session_id":"sess_f48cc992f4d6f3d89da449750c3b1280","run_id":null,"approved_by":"risk:LOW"}', '2026-01-01T00:03:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_04019261f5300fd691244000223022e8', 10, 'tool.execution_signal', 'c1', 'exec_5868afaaa8ef49d964971d30eb353146', '{"timestamp":"2026-01-01T00:03:00.000Z","kind":"tool.execution_signal","tool_id":"exec_5868afaaa8ef49d964971d30eb353146","tool_name":"read_file","digest":"11d7a05c2ddd7ed39bfd086c48f2c552ca3429bd81eccaa65f6accbd91f21756","risk_level":"LOW","approval_id":null,"approved_by":"risk:LOW","bound":{},"mode":"sandbox","network":false,"deadline":"2026-01-01T00:04:00.000Z","client_id":"c1","session_id":"sess_f48cc992f4d6f3d89da449750c3b1280","traceparent":null}', '2026-01-01T00:03:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 1, 'tool.started', NULL, NULL, '{"timestamp":"2026-01-01T00:04:00.000Z","kind":"tool.started","tool_id":"exec_c07cb1218ccb85f5ce6cbb52d9addf89","tool_name":"read_file","tool_params":{"path":"a.txt"},"risk_level":"LOW","session_id":"sess_8bb7e6d2e44293f26a40923d06b26b32","run_id":null,"approved_by":"risk:LOW"}', '2026-01-01T00:04:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 2, 'tool.execution_signal', 'c1', 'exec_c07cb1218ccb85f5ce6cbb52d9addf89', '{"timestamp":"2026-01-01T00:04:00.000Z","kind":"tool.execution_signal","tool_id":"exec_c07cb1218ccb85f5ce6cbb52d9addf89","tool_name":"read_file","digest":"947b69a2a5b5186c994ebba14de1ef1575cb2408a6e7a4f828cd1a19f795dd26","risk_level":"LOW","approval_id":null,"approved_by":"risk:LOW","bound":{},"mode":"sandbox","network":false,"deadline":"2026-01-01T00:05:00.000Z","client_id":"c1","session_id":"sess_8bb7e6d2e44293f26a40923d06b26b32","traceparent":null}', '2026-01-01T00:04:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 3, 'tool.result_ack', NULL, NULL, '{"timestamp":"2026-01-01T00:04:00.000Z","kind":"tool.result_ack","tool_id":"exec_c07cb1218ccb85f5ce6cbb52d9addf89","status":"completed","session_id":"sess_8bb7e6d2e44293f26a40923d06b26b32"}', '2026-01-01T00:04:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 4, 'tool.finished', NULL, NULL,  E'{"timestamp":"2026-01-01T00:04:00.000Z","kind":"tool.finished","tool_id":"exec_c07cb1218ccb85f5ce6cbb52d9addf89","tool_name":"read_file","status":"completed","result":{"success":true,"content":"it''s 0\\\\n"},"result_shortened":false,"error":null,"error_type":null,"execution_time_ms":0,"session_id":"sess_8bb7e6d2e44293f26a40923d06b26b32","run_id":null,"approved_by":"risk:LOW"}', '2026-01-01T00:04:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 5, 'tool.started', NULL, NULL, '{"timestamp":"2026-01-01T00:05:00.000Z","kind":"tool.started","tool_id":"exec_0c070e522289b7696abb91fe8cd91111","tool_name":"read_file","tool_params":{"path":"a.txt"},"risk_level":"LOW","session_id":"sess_8bb7e6d2e44293f26a40923d06b26b32","run_id":null,"approved_by":"risk:LOW"}', '2026-01-01T00:05:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 6, 'tool.execution_signal', 'c1', 'exec_0c070e522289b7696abb91fe8cd91111', '{"timestamp":"2026-01-01T00:05:00.000Z","kind":"tool.execution_signal","tool_id":"exec_0c070e522289b7696abb91fe8cd91111","tool_name":"read_file","digest":"947b69a2a5b5186c994ebba14de1ef1575cb2408a6e7a4f828cd1a19f795dd26","risk_level":"LOW","approval_id":null,"approved_by":"risk:LOW","bound":{},"mode":"sandbox","network":false,"deadline":"2026-01-01T00:06:00.000Z","client_id":"c1","session_id":"sess_8bb7e6d2e44293f26a40923d06b26b32","traceparent":null}', '2026-01-01T00:05:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 7, 'tool.result_ack', NULL, NULL, '{"timestamp":"2026-01-01T00:05:00.000Z","kind":"tool.result_ack","tool_id":"exec_0c070e522289b7696abb91fe8cd91111","status":"completed","session_id":"sess_8bb7e6d2e44293f26a40923d06b26b32"}', '2026-01-01T00:05:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 8, 'tool.finished', NULL, NULL,  E'{"timestamp":"2026-01-01T00:05:00.000Z","kind":"tool.finished","tool_id":"exec_0c070e522289b7696abb91fe8cd91111","tool_name":"read_file","status":"completed","result":{"success":true,"content":"it''s 1\\\\n"},"result_shortened":false,"error":null,"error_type":null,"execution_time_ms":0,"session_id":"sess_8bb7e6d2e44293f26a40923d06b26b32","run_id":null,"approved_by":"risk:LOW"}', '2026-01-01T00:05:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 9, 'tool.started', NULL, NULL, '{"timestamp":"2026-01-01T00:06:00.000Z","kind":"tool.started","tool_id":"exec_4aad1184232d83787910432d984a6b32","tool_name":"read_file","tool_params":{"path":"a.txt"},"risk_level":"LOW","session_id":"sess_8bb7e6d2e44293f26a40923d06b26b32","run_id":null,"approved_by":"risk:LOW"}', '2026-01-01T00:06:00.000Z');
INSERT INTO events (project_id, seq, kind, target, ref, payload, created_at) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 10, 'tool.execution_signal', 'c1', 'exec_4aad1184232d83787910432d984a6b32', '{"timestamp":"2026-01-01T00:06:00.000Z","kind":"tool.execution_signal","tool_id":"exec_4aad1184232d83787910432d984a6b32","tool_name":"read_file","digest":"947b69a2a5b5186c994ebba14de1ef1575cb2408a6e7a4f828cd1a19f795dd26","risk_level":"LOW","approval_id":null,"approved_by":"risk:LOW","bound":{},"mode":"sandbox","network":false,"deadline":"2026-01-01T00:07:00.000Z","client_id":"c1","session_id":"sess_8bb7e6d2e44293f26a40923d06b26b32","traceparent":null}', '2026-01-01T00:06:00.000Z');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_04019261f5300fd691244000223022e8', 1, '2026-01-01T00:00:00.000Z', 'user:alice', 'project_created', NULL, NULL, '{"name":"demo","rows":{"projects/proj_04019261f5300fd691244000223022e8":"96a00c009a6629718878dfde01880a3587e894d3baa68fa8c9ec7d7adf56d578"}}', '0000000000000000000000000000000000000000000000000000000000000000', '26c45ee3f3bf1f0a3fba31e08e2de1638de6e2097beace98537e310f61de677e');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_04019261f5300fd691244000223022e8', 2, '2026-01-01T00:00:00.000Z', 'user:alice', 'session_created', NULL, NULL, '{"session":"sess_f48cc992f4d6f3d89da449750c3b1280","rows":{"sessions/sess_f48cc992f4d6f3d89da449750c3b1280":"1ea0918106225842f224e1f74e11012e519ed2431047a93a0eccf89136d71066"}}', '26c45ee3f3bf1f0a3fba31e08e2de1638de6e2097beace98537e310f61de677e', '7394b8c127809040e956c32a38a390698ebb8e301fb621ec46ea799dde2069a2');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_04019261f5300fd691244000223022e8', 3, '2026-01-01T00:01:00.000Z', 'agent:chat', 'requested', 'exec_78cfadd8b91f886d92dbbd8b0ec304ca', NULL, '{"tool":"read_file","digest":"11d7a05c2ddd7ed39bfd086c48f2c552ca3429bd81eccaa65f6accbd91f21756","risk":"LOW","status":"executing","session":"sess_f48cc992f4d6f3d89da449750c3b1280","approved_by":"risk:LOW","client":"c1","error_type":null,"rows":{"tool_executions/exec_78cfadd8b91f886d92dbbd8b0ec304ca":"779a10af244cca82fbb071bd6047fef7a78f9d935431f5a3b72e4b05b2f67c0c"}}', '7394b8c127809040e956c32a38a390698ebb8e301fb621ec46ea799dde2069a2', '4df9fc360d43ad136bdcd86d55322d4fa8cb756e69412fc3adcb7ed8c39c9472');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_04019261f5300fd691244000223022e8', 4, '2026-01-01T00:01:00.000Z', 'client:c1', 'completed', 'exec_78cfadd8b91f886d92dbbd8b0ec304ca', NULL, '{"error_type":null,"result_hash":"h","rows":{"tool_executions/exec_78cfadd8b91f886d92dbbd8b0ec304ca":"b224ba849878a60862d72e52c1c91ec35228e9601b8fdce46a5bdb33fd8c0e34"},"was":{"tool_executions/exec_78cfadd8b91f886d92dbbd8b0ec304ca":"779a10af244cca82fbb071bd6047fef7a78f9d935431f5a3b72e4b05b2f67c0c"}}', '4df9fc360d43ad136bdcd86d55322d4fa8cb756e69412fc3adcb7ed8c39c9472', '5e3b3a388150c9fe8ba6125635eff1615d4737470ed77499910c227d62db9363');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_04019261f5300fd691244000223022e8', 5, '2026-01-01T00:02:00.000Z', 'agent:chat', 'requested', 'exec_8a3a31f79b0b896689fe874e16c8726d', NULL, '{"tool":"read_file","digest":"11d7a05c2ddd7ed39bfd086c48f2c552ca3429bd81eccaa65f6accbd91f21756","risk":"LOW","status":"executing","session":"sess_f48cc992f4d6f3d89da449750c3b1280","approved_by":"risk:LOW","client":"c1","error_type":null,"rows":{"tool_executions/exec_8a3a31f79b0b896689fe874e16c8726d":"4172242df6cb1e18fe9963ff8cdfefc2912624f93d3ece02410ea6aeb1ec6a8b"}}', '5e3b3a388150c9fe8ba6125635eff1615d4737470ed77499910c227d62db9363', '800c0d5ef628201f4945c08627bf5b23dad27039751cec77e82f5debd595286a');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_04019261f5300fd691244000223022e8', 6, '2026-01-01T00:02:00.000Z', 'client:c1', 'completed', 'exec_8a3a31f79b0b896689fe874e16c8726d', NULL, '{"error_type":null,"result_hash":"h","rows":{"tool_executions/exec_8a3a31f79b0b896689fe874e16c8726d":"ec5cefe0a575a831f5d6cde40eb6ec12ca55bfae75db7218dc00edc8ce3c249c"},"was":{"tool_executions/exec_8a3a31f79b0b896689fe874e16c8726d":"4172242df6cb1e18fe9963ff8cdfefc2912624f93d3ece02410ea6aeb1ec6a8b"}}', '800c0d5ef628201f4945c08627bf5b23dad27039751cec77e82f5debd595286a', '35d95fd6b69c81ab7aabb0a6d6c5a36c66e2cf869b65ed53ce4d7aaade86825a');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_04019261f5300fd691244000223022e8', 7, '2026-01-01T00:03:00.000Z', 'agent:chat', 'requested', 'exec_5868afaaa8ef49d964971d30eb353146', NULL, '{"tool":"read_file","digest":"11d7a05c2ddd7ed39bfd086c48f2c552ca3429bd81eccaa65f6accbd91f21756","risk":"LOW","status":"executing","session":"sess_f48cc992f4d6f3d89da449750c3b1280","approved_by":"risk:LOW","client":"c1","error_type":null,"rows":{"tool_executions/exec_5868afaaa8ef49d964971d30eb353146":"c43820f6ecd3bcd1261811e99f588f125f21e51fb74dc2edf263cf77357799c9"}}', '35d95fd6b69c81ab7aabb0a6d6c5a36c66e2cf869b65ed53ce4d7aaade86825a', '38b46523f6702615e25c86358786fd7586ebbd5c353244f6403c58cf7df0c6f3');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 1, '2026-01-01T00:03:00.000Z', 'user:bob', 'project_created', NULL, NULL, '{"name":"bücher","rows":{"projects/proj_0867b62a2bf1471e41c7bfcfb237cd5b":"c7b95476e87bee6c7823250a8ee9bae817f34b81cb7dcdb9a637cbc85076b924"}}', '0000000000000000000000000000000000000000000000000000000000000000', '412fa092c307159a613f095a132267db0761925a0770488d8218ef0d1e2a4110');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 2, '2026-01-01T00:03:00.000Z', 'user:bob', 'session_created', NULL, NULL, '{"session":"sess_8bb7e6d2e44293f26a40923d06b26b32","rows":{"sessions/sess_8bb7e6d2e44293f26a40923d06b26b32":"3ac2af1942fbb57f97f78f342a6a24939a941c573039451bc9c4dceba1499379"}}', '412fa092c307159a613f095a132267db0761925a0770488d8218ef0d1e2a4110', 'e0b9f7f9ee4085e0be718d50aefd00ab06aa69d7fd743b05ff1e9a9463e38b2e');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 3, '2026-01-01T00:04:00.000Z', 'agent:chat', 'requested', 'exec_c07cb1218ccb85f5ce6cbb52d9addf89', NULL, '{"tool":"read_file","digest":"947b69a2a5b5186c994ebba14de1ef1575cb2408a6e7a4f828cd1a19f795dd26","risk":"LOW","status":"executing","session":"sess_8bb7e6d2e44293f26a40923d06b26b32","approved_by":"risk:LOW","client":"c1","error_type":null,"rows":{"tool_executions/exec_c07cb1218ccb85f5ce6cbb52d9addf89":"30ab210223ef61307708de7841339666eb29f10ff8f5aa6c67edb90012b1749c"}}', 'e0b9f7f9ee4085e0be718d50aefd00ab06aa69d7fd743b05ff1e9a9463e38b2e', '5412c284da6cca0cf682eca4a38a5ec8713d5af9f1664ccd9517dee1dd9ece02');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 4, '2026-01-01T00:04:00.000Z', 'client:c1', 'completed', 'exec_c07cb1218ccb85f5ce6cbb52d9addf89', NULL, '{"error_type":null,"result_hash":"h","rows":{"tool_executions/exec_c07cb1218ccb85f5ce6cbb52d9addf89":"a656f357dd61d893cf72deb7eebfba7d22cf9db56e7ffcb610b7e70e2f30b2d7"},"was":{"tool_executions/exec_c07cb1218ccb85f5ce6cbb52d9addf89":"30ab210223ef61307708de7841339666eb29f10ff8f5aa6c67edb90012b1749c"}}', '5412c284da6cca0cf682eca4a38a5ec8713d5af9f1664ccd9517dee1dd9ece02', '874e1ee060aef06ff3c8f4e4ca9e05b1d2f61d7e574c4a3e7b97f97ee8ea312a');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 5, '2026-01-01T00:05:00.000Z', 'agent:chat', 'requested', 'exec_0c070e522289b7696abb91fe8cd91111', NULL, '{"tool":"read_file","digest":"947b69a2a5b5186c994ebba14de1ef1575cb2408a6e7a4f828cd1a19f795dd26","risk":"LOW","status":"executing","session":"sess_8bb7e6d2e44293f26a40923d06b26b32","approved_by":"risk:LOW","client":"c1","error_type":null,"rows":{"tool_executions/exec_0c070e522289b7696abb91fe8cd91111":"9a8fba5d2193836b81259bcd3c7336322d7ceb7d3f7c3418e49bf0345b7b28e6"}}', '874e1ee060aef06ff3c8f4e4ca9e05b1d2f61d7e574c4a3e7b97f97ee8ea312a', '5d850bce4db3f930fcdc1f4db6e2aa5837e9694e81d11b82b8ef04400d79ae90');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 6, '2026-01-01T00:05:00.000Z', 'client:c1', 'completed', 'exec_0c070e522289b7696abb91fe8cd91111', NULL, '{"error_type":null,"result_hash":"h","rows":{"tool_executions/exec_0c070e522289b7696abb91fe8cd91111":"2e9bfda3aec92142564451633b956b6f95f3b22070f72add4af2eec537452d67"},"was":{"tool_executions/exec_0c070e522289b7696abb91fe8cd91111":"9a8fba5d2193836b81259bcd3c7336322d7ceb7d3f7c3418e49bf0345b7b28e6"}}', '5d850bce4db3f930fcdc1f4db6e2aa5837e9694e81d11b82b8ef04400d79ae90', 'd51fafb65a03830a889253752dfab3a6a1ecf64d86cd88e233ffae541dc42fdb');
INSERT INTO audit (project_id, seq, at, actor, action, execution_id, approval_id, detail, previous_hash, hash) VALUES ('proj_0867b62a2bf1471e41c7bfcfb237cd5b', 7, '2026-01-01T00:06:00.000Z', 'agent:chat', 'requested', 'exec_4aad1184232d83787910432d984a6b32', NULL, '{"tool":"read_file","digest":"947b69a2a5b5186c994ebba14de1ef1575cb2408a6e7a4f828cd1a19f795dd26","risk":"LOW","status":"executing","session":"sess_8bb7e6d2e44293f26a40923d06b26b32","approved_by":"risk:LOW","client":"c1","error_type":null,"rows":{"tool_executions/exec_4aad1184232d83787910432d984a6b32":"6aae88ef2f51fb705af73fc900223f85f7d8647eff95ac231008b39aeb261cf2"}}', 'd51fafb65a03830a889253752dfab3a6a1ecf64d86cd88e233ffae541dc42fdb', '4bac292b818278e2be25f81c16f351cb17f8aaa9d26fc5cba73184eb2a8f1131');
INSERT INTO sessions (id, project_id, user_id, title, created_at) VALUES ('sess_f48cc992f4d6f3d89da449750c3b1280', 'proj_04019261f5300fd691244000223022e8', 'alice', 'first', '2026-01-01T00:00:00.000Z');
INSERT INTO sessions (id, project_id, user_id, title, created_at) VALUES ('sess_8bb7e6d2e44293f26a40923d06b26b32', 'proj_0867b62a2bf1471e41c7bfcfb237cd5b', 'bob', 'first', '2026-01-01T00:03:00.000Z');
INSERT INTO tool_executions (id, user_id, project_id, session_id, run_id, agent_id, mode, approval_id, client_id, tool_name, tool_params, true_params, digest, request_digest, bound, result, result_hash, risk_level, requires_approval, findings, network, approved_by, status, error, error_type, execution_time_ms, timeout_seconds, deadline, output_seq, cancel_requested, created_at, approved_at, started_at, completed_at) VALUES ('exec_78cfadd8b91f886d92dbbd8b0ec304ca', 'alice', 'proj_04019261f5300fd691244000223022e8', 'sess_f48cc992f4d6f3d89da449750c3b1280', NULL, NULL, 'sandbox', NULL, 'c1', 'read_file', '{"path":"a.txt"}', NULL, '11d7a05c2ddd7ed39bfd086c48f2c552ca3429bd81eccaa65f6accbd91f21756', NULL, NULL,  E'{"success":true,"content":"it''s 0\\\\n"}', 'h', 'LOW', false, '[]', false, 'risk:LOW', 'COMPLETED', NULL, NULL, 0, 30, NULL, 0, false, '2026-01-01T00:01:00.000Z', '2026-01-01T00:01:00.000Z', '2026-01-01T00:01:00.000Z', '2026-01-01T00:01:00.000Z');
INSERT INTO tool_executions (id, user_id, project_id, session_id, run_id, agent_id, mode, approval_id, client_id, tool_name, tool_params, true_params, digest, request_digest, bound, result, result_hash, risk_level, requires_approval, findings, network, approved_by, status, error, error_type, execution_time_ms, timeout_seconds, deadline, output_seq, cancel_requested, created_at, approved_at, started_at, completed_at) VALUES ('exec_8a3a31f79b0b896689fe874e16c8726d', 'alice', 'proj_04019261f5300fd691244000223022e8', 'sess_f48cc992f4d6f3d89da449750c3b1280', NULL, NULL, 'sandbox', NULL, 'c1', 'read_file', '{"path":"a.txt"}', NULL, '11d7a05c2ddd7ed39bfd086c48f2c552ca3429bd81eccaa65f6accbd91f21756', NULL, NULL,  E'{"success":true,"content":"it''s 1\\\\n"}', 'h', 'LOW', false, '[]', false, 'risk:LOW', 'COMPLETED', NULL, NULL, 0, 30, NULL, 0, false, '2026-01-01T00:02:00.000Z', '2026-01-01T00:02:00.000Z', '2026-01-01T00:02:00.000Z', '2026-01-01T00:02:00.000Z');
INSERT INTO tool_executions (id, user_id, project_id, session_id, run_id, agent_id, mode, approval_id, client_id, tool_name, tool_params, true_params, digest, request_digest, bound, result, result_hash, risk_level, requires_approval, findings, network, approved_by, status, error, error_type, execution_time_ms, timeout_seconds, deadline, output_seq, cancel_requested, created_at, approved_at, started_at, completed_at) VALUES ('exec_5868afaaa8ef49d964971d30eb353146', 'alice', 'proj_04019261f5300fd691244000223022e8', 'sess_f48cc992f4d6f3d89da449750c3b1280', NULL, NULL, 'sandbox', NULL, 'c1', 'read_file', '{"path":"a.txt"}', '{"path":"a.txt"}', '11d7a05c2ddd7ed39bfd086c48f2c552ca3429bd81eccaa65f6accbd91f21756', NULL, NULL, NULL, NULL, 'LOW', false, '[]', false, 'risk:LOW', 'EXECUTING', NULL, NULL, NULL, 30, '2026-01-01T00:04:00.000Z', 0, false, '2026-01-01T00:03:00.000Z', '2026-01-01T00:03:00.000Z', '2026-01-01T00:03:00.000Z', NULL);
INSERT INTO tool_executions (id, user_id, project_id, session_id, run_id, agent_id, mode, approval_id, client_id, tool_name, tool_params, true_params, digest, request_digest, bound, result, result_hash, risk_level, requires_approval, findings, network, approved_by, status, error, error_type, execution_time_ms, timeout_seconds, deadline, output_seq, cancel_requested, created_at, approved_at, started_at, completed_at) VALUES ('exec_c07cb1218ccb85f5ce6cbb52d9addf89', 'bob', 'proj_0867b62a2bf1471e41c7bfcfb237cd5b', 'sess_8bb7e6d2e44293f26a40923d06b26b32', NULL, NULL, 'sandbox', NULL, 'c1', 'read_file', '{"path":"a.txt"}', NULL, '947b69a2a5b5186c994ebba14de1ef1575cb2408a6e7a4f828cd1a19f795dd26', NULL, NULL,  E'{"success":true,"content":"it''s 0\\\\n"}', 'h', 'LOW', false, '[]', false, 'risk:LOW', 'COMPLETED', NULL, NULL, 0, 30, NULL, 0, false, '2026-01-01T00:04:00.000Z', '2026-01-01T00:04:00.000Z', '2026-01-01T00:04:00.000Z', '2026-01-01T00:04:00.000Z');
INSERT INTO tool_executions (id, user_id, project_id, session_id, run_id, agent_id, mode, approval_id, client_id, tool_name, tool_params, true_params, digest, request_digest, bound, result, result_hash, risk_level, requires_approval, findings, network, approved_by, status, error, error_type, execution_time_ms, timeout_seconds, deadline, output_seq, cancel_requested, created_at, approved_at, started_at, completed_at) VALUES ('exec_0c070e522289b7696abb91fe8cd91111', 'bob', 'proj_0867b62a2bf1471e41c7bfcfb237cd5b', 'sess_8bb7e6d2e44293f26a40923d06b26b32', NULL, NULL, 'sandbox', NULL, 'c1', 'read_file', '{"path":"a.txt"}', NULL, '947b69a2a5b5186c994ebba14de1ef1575cb2408a6e7a4f828cd1a19f795dd26', NULL, NULL,  E'{"success":true,"content":"it''s 1\\\\n"}', 'h', 'LOW', false, '[]', false, 'risk:LOW', 'COMPLETED', NULL, NULL, 0, 30, NULL, 0, false, '2026-01-01T00:05:00.000Z', '2026-01-01T00:05:00.000Z', '2026-01-01T00:05:00.000Z', '2026-01-01T00:05:00.000Z');
INSERT INTO tool_executions (id, user_id, project_id, session_id, run_id, agent_id, mode, approval_id, client_id, tool_name, tool_params, true_params, digest, request_digest, bound, result, result_hash, risk_level, requires_approval, findings, network, approved_by, status, error, error_type, execution_time_ms, timeout_seconds, deadline, output_seq, cancel_requested, created_at, approved_at, started_at, completed_at) VALUES ('exec_4aad1184232d83787910432d984a6b32', 'bob', 'proj_0867b62a2bf1471e41c7bfcfb237cd5b', 'sess_8bb7e6d2e44293f26a40923d06b26b32', NULL, NULL, 'sandbox', NULL, 'c1', 'read_file', '{"path":"a.txt"}', '{"path":"a.txt"}', '947b69a2a5b5186c994ebba14de1ef1575cb2408a6e7a4f828cd1a19f795dd26', NULL, NULL, NULL, NULL, 'LOW', false, '[]', false, 'risk:LOW', 'EXECUTING', NULL, NULL, NULL, 30, '2026-01-01T00:07:00.000Z', 0, false, '2026-01-01T00:06:00.000Z', '2026-01-01T00:06:00.000Z', '2026-01-01T00:06:00.000Z', NULL);
INSERT INTO alembic_version (version_num) VALUES ('0011');
