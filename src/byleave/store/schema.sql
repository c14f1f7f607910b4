-- The schema, stated once: a new record is made from this file; migrations only bring older records up to it.
-- Written in the part of SQL that SQLite and PostgreSQL share.
--
-- Times are text (`2026-11-15T12:00:00.000Z`): readable in any shell, sortable, and hashed as they stand. JSON is text
-- too, so that both dialects store the same bytes.

CREATE TABLE projects (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    user_id VARCHAR(200) NOT NULL,
    name VARCHAR(200) NOT NULL,
    -- As the last client declared its machine, so that absolute paths can be judged while none is connected.
    workspace TEXT,
    isolation VARCHAR(40),
    created_at VARCHAR(24) NOT NULL
);
CREATE INDEX ix_projects_user_id ON projects (user_id, created_at);

-- One row a project, locked by whoever writes: commit order is sequence order, so a reader who has seen N never misses
-- an event that commits later with a smaller number.
CREATE TABLE feeds (
    project_id VARCHAR(64) NOT NULL PRIMARY KEY REFERENCES projects (id),
    seq BIGINT NOT NULL,
    audit_seq BIGINT NOT NULL,
    audit_hash VARCHAR(64) NOT NULL,
    audit_seal VARCHAR(64) NOT NULL DEFAULT ''  -- HMAC of number and hash of the last record
);

-- HMAC of all projects' heads together: a project that was deleted leaves no chain to miss it in, and one that alone was
-- made what it was has an older head than the others.
CREATE TABLE seals (
    name VARCHAR(20) NOT NULL PRIMARY KEY,
    value VARCHAR(64) NOT NULL,
    seal VARCHAR(64) NOT NULL
);

CREATE TABLE events (
    project_id VARCHAR(64) NOT NULL,
    seq BIGINT NOT NULL,
    kind VARCHAR(40) NOT NULL,
    target VARCHAR(64),  -- the one client it is for; null: everybody who watches
    ref VARCHAR(64),  -- the execution a signal carries; its parameters are joined in on delivery
    payload TEXT NOT NULL,
    created_at VARCHAR(24) NOT NULL,
    PRIMARY KEY (project_id, seq)
);

CREATE TABLE audit (
    project_id VARCHAR(64) NOT NULL,
    seq BIGINT NOT NULL,
    at VARCHAR(24) NOT NULL,
    actor VARCHAR(250) NOT NULL,
    action VARCHAR(40) NOT NULL,
    execution_id VARCHAR(64),
    approval_id VARCHAR(64),
    detail TEXT NOT NULL,
    previous_hash VARCHAR(64) NOT NULL,
    hash VARCHAR(64) NOT NULL,
    PRIMARY KEY (project_id, seq)
);

CREATE TABLE sessions (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    project_id VARCHAR(64) NOT NULL REFERENCES projects (id),
    user_id VARCHAR(200) NOT NULL,
    title VARCHAR(200) NOT NULL,
    created_at VARCHAR(24) NOT NULL
);
CREATE INDEX ix_sessions_project_id ON sessions (project_id, created_at);

-- Conversations that a person deleted. Their rows stay without a title: calls and grants refer to them.
CREATE TABLE deleted_sessions (
    session_id VARCHAR(64) NOT NULL PRIMARY KEY REFERENCES sessions (id),
    deleted_at VARCHAR(24) NOT NULL
);

CREATE TABLE runs (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    project_id VARCHAR(64) NOT NULL,
    session_id VARCHAR(64) NOT NULL REFERENCES sessions (id),
    user_id VARCHAR(200) NOT NULL,
    agent VARCHAR(64) NOT NULL DEFAULT 'chat',
    mode VARCHAR(10) NOT NULL,
    state VARCHAR(10) NOT NULL,
    prompt TEXT NOT NULL,
    history TEXT,  -- what the agent's framework needs to resume; null before the first step
    owner VARCHAR(64),
    lease_until VARCHAR(24),
    fence BIGINT NOT NULL,
    attempts INTEGER NOT NULL,
    error TEXT,
    position BIGINT NOT NULL,  -- order within the session
    created_at VARCHAR(24) NOT NULL,
    updated_at VARCHAR(24) NOT NULL,
    UNIQUE (session_id, position)
);
CREATE INDEX ix_runs_open ON runs (state, lease_until) WHERE state IN ('READY', 'RUNNING', 'WAITING');
-- The next run, and whether its session has an earlier one: asked each time a worker looks.
CREATE INDEX ix_runs_ready ON runs (created_at, id) WHERE state = 'READY';
CREATE INDEX ix_runs_order ON runs (session_id, position) WHERE state IN ('READY', 'RUNNING', 'WAITING');

-- The model that a person chose for a run. Not a column of `runs`: the chain covers that table, and older servers would
-- not know the column.
CREATE TABLE run_models (
    run_id VARCHAR(64) NOT NULL PRIMARY KEY,
    session_id VARCHAR(64) NOT NULL,
    model VARCHAR(300) NOT NULL
);
CREATE INDEX ix_run_models_session ON run_models (session_id);

CREATE TABLE messages (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    project_id VARCHAR(64) NOT NULL,
    session_id VARCHAR(64) NOT NULL REFERENCES sessions (id),
    run_id VARCHAR(64),
    role VARCHAR(10) NOT NULL,
    content TEXT NOT NULL,
    position BIGINT NOT NULL,
    created_at VARCHAR(24) NOT NULL,
    UNIQUE (session_id, position)
);
CREATE INDEX ix_messages_project ON messages (project_id, id);

-- The sender's own key of a message, so that one whose answer was lost is not stored twice.
CREATE TABLE message_keys (
    project_id VARCHAR(64) NOT NULL,
    user_id VARCHAR(200) NOT NULL,
    client_key VARCHAR(64) NOT NULL,
    digest VARCHAR(64) NOT NULL,  -- of what was sent
    session_id VARCHAR(64),  -- as it was sent; null asked for a new one
    message_id VARCHAR(64) NOT NULL REFERENCES messages (id),
    PRIMARY KEY (project_id, user_id, client_key)
);

-- One-time links that sign in. A used one stays until it would have expired: it counts as one that was asked for.
CREATE TABLE sign_in_links (
    digest VARCHAR(64) NOT NULL PRIMARY KEY,  -- HMAC of the link's code, with a key that is not in the database
    user_id VARCHAR(200) NOT NULL,
    scopes VARCHAR(200) NOT NULL,  -- what a program may get by it
    led_by TEXT NOT NULL,  -- the page's sign-ins that asked for it
    session_until VARCHAR(24),  -- latest end of its sign-in; null if only the usual length limits it
    created_at VARCHAR(24) NOT NULL,
    good_until VARCHAR(24) NOT NULL,
    used_at VARCHAR(24)
);
CREATE INDEX ix_sign_in_links_user ON sign_in_links (user_id, created_at);
CREATE INDEX ix_sign_in_links_good_until ON sign_in_links (good_until);

-- Requests to a machine to undo a call, while a person waits for the report or the machine is at it. Few at a time.
CREATE TABLE undo_reports (
    request_id VARCHAR(64) NOT NULL PRIMARY KEY,
    execution_id VARCHAR(64) NOT NULL,
    user_id VARCHAR(200) NOT NULL,
    awaited_until VARCHAR(24) NOT NULL,  -- somebody waits for the report so long
    begun_until VARCHAR(24),  -- the machine has begun; if it does not report until then, it counts as lost
    report TEXT  -- secrets masked; gone once the one who waits has it
);

-- Sign-outs: the cookies of these sign-ins, and copies of them, are refused.
CREATE TABLE ended_sign_ins (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    user_id VARCHAR(200) NOT NULL,
    ended_at VARCHAR(24) NOT NULL,
    good_until VARCHAR(24) NOT NULL  -- when the last of its cookies ends by itself
);
CREATE INDEX ix_ended_sign_ins_good_until ON ended_sign_ins (good_until);

-- Browsers that get a push message when something waits, each by the address its push service gave it.
CREATE TABLE push_devices (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    user_id VARCHAR(200) NOT NULL,
    endpoint TEXT NOT NULL,
    endpoint_digest VARCHAR(64) NOT NULL UNIQUE,
    p256dh VARCHAR(100) NOT NULL,  -- the browser's public key, and its secret: messages are encrypted for it
    auth VARCHAR(40) NOT NULL,
    name VARCHAR(100) NOT NULL,
    sign_ins TEXT NOT NULL,  -- the page's sign-ins that asked for it: it goes with them
    created_at VARCHAR(24) NOT NULL,
    sent_at VARCHAR(24)
);
CREATE INDEX ix_push_devices_user ON push_devices (user_id, created_at);

-- Questions that a person was told about elsewhere, by push message or webhook: by one server, once.
CREATE TABLE notices (
    approval_id VARCHAR(64) NOT NULL PRIMARY KEY,
    user_id VARCHAR(200) NOT NULL,
    claimed_at VARCHAR(24) NOT NULL,  -- by the server that sends it
    sent_at VARCHAR(24)  -- when that was over; null after a while: the server died
);
CREATE INDEX ix_notices_user ON notices (user_id, claimed_at);
CREATE INDEX ix_notices_claimed_at ON notices (claimed_at);

CREATE TABLE approvals (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    user_id VARCHAR(200) NOT NULL,
    project_id VARCHAR(64) NOT NULL,
    session_id VARCHAR(64),
    agent_id VARCHAR(64),
    tool_name VARCHAR(100) NOT NULL,
    tool_params TEXT NOT NULL,  -- as shown
    digest VARCHAR(64) NOT NULL,
    risk_level VARCHAR(10) NOT NULL,
    findings TEXT NOT NULL,
    network BOOLEAN NOT NULL,
    description TEXT NOT NULL,
    status VARCHAR(10) NOT NULL,
    timeout_seconds INTEGER NOT NULL,
    created_at VARCHAR(24) NOT NULL,
    deadline VARCHAR(24) NOT NULL,
    decided_at VARCHAR(24),
    decided_by VARCHAR(250),
    reason TEXT,
    scope VARCHAR(20),
    inspection TEXT,  -- files that would run or be replaced, as the machine saw them
    suggestions TEXT,  -- rules an answer could save
    unseen TEXT,  -- changes it named that nobody had seen; null where no code of the workspace would run
    grant_id VARCHAR(64),  -- saved with the answer, or what answered
    decided_from VARCHAR(10),  -- where a person answered
    edit TEXT  -- set if a person changed the call: who, and what the agent asked for
);
CREATE INDEX ix_approvals_pending ON approvals (user_id, created_at) WHERE status = 'pending';
CREATE INDEX ix_approvals_deadline ON approvals (deadline) WHERE status = 'pending';
CREATE INDEX ix_approvals_project ON approvals (project_id, id);
CREATE INDEX ix_approvals_session_digest ON approvals (session_id, digest);
-- A person's newest refusals in a session, which never ends: looked at for each call that would ask.
CREATE INDEX ix_approvals_rejected ON approvals (session_id, decided_at) WHERE status = 'rejected';
CREATE INDEX ix_approvals_shown ON approvals (project_id, created_at) WHERE unseen IS NOT NULL AND status = 'approved';

CREATE TABLE replaced_texts (
    approval_id VARCHAR(64) NOT NULL PRIMARY KEY,
    user_id VARCHAR(200) NOT NULL,
    size INTEGER NOT NULL,
    text TEXT NOT NULL,  -- what the write would replace, secrets masked
    created_at VARCHAR(24) NOT NULL
);
CREATE INDEX ix_replaced_texts_user ON replaced_texts (user_id, size);
CREATE INDEX ix_replaced_texts_created ON replaced_texts (created_at);

CREATE TABLE tool_executions (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    user_id VARCHAR(200) NOT NULL,
    project_id VARCHAR(64) NOT NULL,
    session_id VARCHAR(64) NOT NULL,
    run_id VARCHAR(64),
    agent_id VARCHAR(64),
    mode VARCHAR(10) NOT NULL,
    approval_id VARCHAR(64),
    client_id VARCHAR(64),
    tool_name VARCHAR(100) NOT NULL,
    tool_params TEXT NOT NULL,  -- secrets masked
    true_params TEXT,  -- what the client gets; dropped when the execution ends
    digest VARCHAR(64) NOT NULL,  -- what is approved: the call, and the files it is bound to
    request_digest VARCHAR(64),  -- the call alone; null where nothing is bound
    bound TEXT,
    result TEXT,
    result_hash VARCHAR(64),
    risk_level VARCHAR(10) NOT NULL,
    requires_approval BOOLEAN NOT NULL,
    findings TEXT NOT NULL,
    network BOOLEAN NOT NULL,
    approved_by VARCHAR(250),
    status VARCHAR(20) NOT NULL,
    error VARCHAR(1000),
    error_type VARCHAR(30),
    execution_time_ms BIGINT,
    timeout_seconds INTEGER NOT NULL,
    deadline VARCHAR(24),
    output_seq INTEGER NOT NULL,
    output_size INTEGER NOT NULL DEFAULT 0,  -- characters of its live output in the feed
    cancel_requested BOOLEAN NOT NULL,
    created_at VARCHAR(24) NOT NULL,
    approved_at VARCHAR(24),
    started_at VARCHAR(24),
    completed_at VARCHAR(24),
    edit TEXT,  -- set if a person changed the call: who, and what the agent asked for, secrets masked
    asked_params TEXT  -- what the agent asked for, if a person changed it; dropped when the execution ends
);
CREATE INDEX ix_tool_executions_project ON tool_executions (project_id, id);
CREATE INDEX ix_tool_executions_user ON tool_executions (user_id, created_at, id);
CREATE INDEX ix_tool_executions_approval ON tool_executions (approval_id);
CREATE INDEX ix_tool_executions_run ON tool_executions (run_id);
-- Calls that may have changed something; reads are many, and not in it.
CREATE INDEX ix_tool_executions_changes ON tool_executions (project_id, tool_name, approved_at)
    WHERE risk_level <> 'LOW';
CREATE INDEX ix_tool_executions_session ON tool_executions (session_id, created_at, id) WHERE risk_level <> 'LOW';
-- Those of them that no person was asked about.
CREATE INDEX ix_tool_executions_unasked ON tool_executions (project_id, tool_name, approved_at)
    WHERE risk_level <> 'LOW' AND substr(approved_by, 1, 7) <> 'person:';
CREATE INDEX ix_tool_executions_deadline ON tool_executions (deadline)
    WHERE status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING');
CREATE INDEX ix_tool_executions_open ON tool_executions (project_id, status)
    WHERE status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING');

CREATE TABLE grants (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    user_id VARCHAR(200) NOT NULL,
    project_id VARCHAR(64) NOT NULL REFERENCES projects (id),
    session_id VARCHAR(64) NOT NULL REFERENCES sessions (id),
    scope VARCHAR(20) NOT NULL,
    rule TEXT,  -- null: everything in the session
    text TEXT NOT NULL,  -- as it was shown
    in_chat BOOLEAN NOT NULL,  -- the chat's own agent asked; a call from elsewhere that names the session is another's
    approval_id VARCHAR(64),
    uses INTEGER NOT NULL,
    max_uses INTEGER,
    created_at VARCHAR(24) NOT NULL,
    created_by VARCHAR(250) NOT NULL,
    expires_at VARCHAR(24) NOT NULL,
    revoked_at VARCHAR(24),
    revoked_by VARCHAR(250)
);
CREATE INDEX ix_grants_user ON grants (user_id, created_at);
CREATE INDEX ix_grants_session ON grants (session_id) WHERE revoked_at IS NULL;
CREATE INDEX ix_grants_project ON grants (project_id) WHERE revoked_at IS NULL AND scope = 'project';

-- The rules a machine's owner wrote, as its client declared them last.
CREATE TABLE machines (
    project_id VARCHAR(64) NOT NULL REFERENCES projects (id),
    client_id VARCHAR(64) NOT NULL,
    policy TEXT NOT NULL,
    declared_at VARCHAR(24) NOT NULL,
    PRIMARY KEY (project_id, client_id)
);

-- The tokens each client has connected with: its reports are taken with no other.
CREATE TABLE client_tokens (
    project_id VARCHAR(64) NOT NULL REFERENCES projects (id),
    client_id VARCHAR(64) NOT NULL,
    token VARCHAR(64) NOT NULL,  -- its digest; or key: and that of the client's key
    seen_at VARCHAR(24) NOT NULL,
    generation BIGINT,  -- the latest start of the client that opened a stream, and its name
    instance VARCHAR(32),
    displaces BOOLEAN NOT NULL DEFAULT FALSE,  -- it came while an earlier start was connected, which may run its calls
    PRIMARY KEY (project_id, client_id, token)
);

-- The servers that share this record, each with a lease, and the row `all`, which every writer locks first: writers take
-- turns. In SQLite, which one server has for itself, both tables stay empty.
CREATE TABLE servers (
    id VARCHAR(64) NOT NULL PRIMARY KEY,
    place VARCHAR(300) NOT NULL,
    commits BIGINT NOT NULL,
    until VARCHAR(24) NOT NULL
);

-- The clients' streams that are open at each server.
CREATE TABLE connections (
    server_id VARCHAR(64) NOT NULL,
    number BIGINT NOT NULL,  -- counted by the server
    project_id VARCHAR(64) NOT NULL,
    client_id VARCHAR(64) NOT NULL,
    declared BOOLEAN NOT NULL,
    workspace TEXT,
    isolation VARCHAR(40),
    looks BOOLEAN NOT NULL,
    editor VARCHAR(20),
    generation VARCHAR(48),  -- number and name of the client's start
    since VARCHAR(24) NOT NULL,
    PRIMARY KEY (server_id, number)
);
CREATE INDEX ix_connections_project ON connections (project_id);

-- Alembic's own: which migration this record has.
CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL PRIMARY KEY);
