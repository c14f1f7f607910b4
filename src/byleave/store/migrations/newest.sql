BEGIN TRANSACTION;
CREATE TABLE alembic_version (
	version_num VARCHAR(32) NOT NULL, 
	CONSTRAINT alembic_version_pkc PRIMARY KEY (version_num)
);
INSERT INTO "alembic_version" VALUES('0008');
CREATE TABLE approvals (
	id VARCHAR(64) NOT NULL, 
	user_id VARCHAR(200) NOT NULL, 
	project_id VARCHAR(64) NOT NULL, 
	session_id VARCHAR(64), 
	agent_id VARCHAR(64), 
	tool_name VARCHAR(100) NOT NULL, 
	tool_params TEXT NOT NULL, 
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
	scope VARCHAR(20), inspection TEXT, suggestions TEXT, unseen TEXT, grant_id VARCHAR(64), decided_from VARCHAR(10), 
	CONSTRAINT pk_approvals PRIMARY KEY (id)
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
	CONSTRAINT pk_audit PRIMARY KEY (project_id, seq)
);
CREATE TABLE client_tokens (
	project_id VARCHAR(64) NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	token VARCHAR(64) NOT NULL, 
	seen_at VARCHAR(24) NOT NULL, 
	CONSTRAINT pk_client_tokens PRIMARY KEY (project_id, client_id, token), 
	CONSTRAINT fk_client_tokens_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE TABLE ended_sign_ins (
	id VARCHAR(64) NOT NULL, 
	user_id VARCHAR(200) NOT NULL, 
	ended_at VARCHAR(24) NOT NULL, 
	good_until VARCHAR(24) NOT NULL, 
	CONSTRAINT pk_ended_sign_ins PRIMARY KEY (id)
);
CREATE TABLE events (
	project_id VARCHAR(64) NOT NULL, 
	seq BIGINT NOT NULL, 
	kind VARCHAR(40) NOT NULL, 
	target VARCHAR(64), 
	ref VARCHAR(64), 
	payload TEXT NOT NULL, 
	created_at VARCHAR(24) NOT NULL, 
	CONSTRAINT pk_events PRIMARY KEY (project_id, seq)
);
CREATE TABLE feeds (
	project_id VARCHAR(64) NOT NULL, 
	seq BIGINT NOT NULL, 
	audit_seq BIGINT NOT NULL, 
	audit_hash VARCHAR(64) NOT NULL, audit_seal VARCHAR(64) DEFAULT '' NOT NULL, 
	CONSTRAINT pk_feeds PRIMARY KEY (project_id), 
	CONSTRAINT fk_feeds_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE TABLE grants (
	id VARCHAR(64) NOT NULL, 
	user_id VARCHAR(200) NOT NULL, 
	project_id VARCHAR(64) NOT NULL, 
	session_id VARCHAR(64) NOT NULL, 
	scope VARCHAR(20) NOT NULL, 
	rule TEXT, 
	text TEXT NOT NULL, 
	in_chat BOOLEAN NOT NULL, 
	approval_id VARCHAR(64), 
	uses INTEGER NOT NULL, 
	max_uses INTEGER, 
	created_at VARCHAR(24) NOT NULL, 
	created_by VARCHAR(250) NOT NULL, 
	expires_at VARCHAR(24) NOT NULL, 
	revoked_at VARCHAR(24), 
	revoked_by VARCHAR(250), 
	CONSTRAINT pk_grants PRIMARY KEY (id), 
	CONSTRAINT fk_grants_project_id FOREIGN KEY(project_id) REFERENCES projects (id), 
	CONSTRAINT fk_grants_session_id FOREIGN KEY(session_id) REFERENCES sessions (id)
);
CREATE TABLE machines (
	project_id VARCHAR(64) NOT NULL, 
	client_id VARCHAR(64) NOT NULL, 
	policy TEXT NOT NULL, 
	declared_at VARCHAR(24) NOT NULL, 
	CONSTRAINT pk_machines PRIMARY KEY (project_id, client_id), 
	CONSTRAINT fk_machines_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE TABLE message_keys (
	project_id VARCHAR(64) NOT NULL, 
	user_id VARCHAR(200) NOT NULL, 
	client_key VARCHAR(64) NOT NULL, 
	digest VARCHAR(64) NOT NULL, 
	session_id VARCHAR(64), 
	message_id VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_message_keys PRIMARY KEY (project_id, user_id, client_key), 
	CONSTRAINT fk_message_keys_message_id FOREIGN KEY(message_id) REFERENCES messages (id)
);
CREATE TABLE messages (
	id VARCHAR(64) NOT NULL, 
	project_id VARCHAR(64) NOT NULL, 
	session_id VARCHAR(64) NOT NULL, 
	run_id VARCHAR(64), 
	role VARCHAR(10) NOT NULL, 
	content TEXT NOT NULL, 
	position BIGINT NOT NULL, 
	created_at VARCHAR(24) NOT NULL, 
	CONSTRAINT pk_messages PRIMARY KEY (id), 
	CONSTRAINT fk_messages_session_id FOREIGN KEY(session_id) REFERENCES sessions (id), 
	CONSTRAINT uq_messages_session_id_position UNIQUE (session_id, position)
);
CREATE TABLE projects (
	id VARCHAR(64) NOT NULL, 
	user_id VARCHAR(200) NOT NULL, 
	name VARCHAR(200) NOT NULL, 
	workspace TEXT, 
	isolation VARCHAR(40), 
	created_at VARCHAR(24) NOT NULL, 
	CONSTRAINT pk_projects PRIMARY KEY (id)
);
CREATE TABLE replaced_texts (
	approval_id VARCHAR(64) NOT NULL, 
	user_id VARCHAR(200) NOT NULL, 
	size INTEGER NOT NULL, 
	text TEXT NOT NULL, 
	created_at VARCHAR(24) NOT NULL, 
	CONSTRAINT pk_replaced_texts PRIMARY KEY (approval_id)
);
CREATE TABLE runs (
	id VARCHAR(64) NOT NULL, 
	project_id VARCHAR(64) NOT NULL, 
	session_id VARCHAR(64) NOT NULL, 
	user_id VARCHAR(200) NOT NULL, 
	mode VARCHAR(10) NOT NULL, 
	state VARCHAR(10) NOT NULL, 
	prompt TEXT NOT NULL, 
	history TEXT, 
	owner VARCHAR(64), 
	lease_until VARCHAR(24), 
	fence BIGINT NOT NULL, 
	attempts INTEGER NOT NULL, 
	error TEXT, 
	position BIGINT NOT NULL, 
	created_at VARCHAR(24) NOT NULL, 
	updated_at VARCHAR(24) NOT NULL, agent VARCHAR(64) DEFAULT 'chat' NOT NULL, 
	CONSTRAINT pk_runs PRIMARY KEY (id), 
	CONSTRAINT fk_runs_session_id FOREIGN KEY(session_id) REFERENCES sessions (id), 
	CONSTRAINT uq_runs_session_id_position UNIQUE (session_id, position)
);
CREATE TABLE seals (
	name VARCHAR(20) NOT NULL, 
	value VARCHAR(64) NOT NULL, 
	seal VARCHAR(64) NOT NULL, 
	CONSTRAINT pk_seals PRIMARY KEY (name)
);
CREATE TABLE sessions (
	id VARCHAR(64) NOT NULL, 
	project_id VARCHAR(64) NOT NULL, 
	user_id VARCHAR(200) NOT NULL, 
	title VARCHAR(200) NOT NULL, 
	created_at VARCHAR(24) NOT NULL, 
	CONSTRAINT pk_sessions PRIMARY KEY (id), 
	CONSTRAINT fk_sessions_project_id FOREIGN KEY(project_id) REFERENCES projects (id)
);
CREATE TABLE tool_executions (
	id VARCHAR(64) NOT NULL, 
	user_id VARCHAR(200) NOT NULL, 
	project_id VARCHAR(64) NOT NULL, 
	session_id VARCHAR(64) NOT NULL, 
	run_id VARCHAR(64), 
	agent_id VARCHAR(64), 
	mode VARCHAR(10) NOT NULL, 
	approval_id VARCHAR(64), 
	client_id VARCHAR(64), 
	tool_name VARCHAR(100) NOT NULL, 
	tool_params TEXT NOT NULL, 
	true_params TEXT, 
	digest VARCHAR(64) NOT NULL, 
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
	cancel_requested BOOLEAN NOT NULL, 
	created_at VARCHAR(24) NOT NULL, 
	approved_at VARCHAR(24), 
	started_at VARCHAR(24), 
	completed_at VARCHAR(24), request_digest VARCHAR(64), bound TEXT, 
	CONSTRAINT pk_tool_executions PRIMARY KEY (id)
);
CREATE INDEX ix_approvals_pending ON approvals (user_id, created_at) WHERE status = 'pending';
CREATE INDEX ix_approvals_session_digest ON approvals (session_id, digest);
CREATE INDEX ix_projects_user_id ON projects (user_id, created_at);
CREATE INDEX ix_tool_executions_approval ON tool_executions (approval_id);
CREATE INDEX ix_tool_executions_run ON tool_executions (run_id);
CREATE INDEX ix_tool_executions_user ON tool_executions (user_id, created_at, id);
CREATE INDEX ix_sessions_project_id ON sessions (project_id, created_at);
CREATE INDEX ix_runs_open ON runs (state, lease_until) WHERE state IN ('READY', 'RUNNING', 'WAITING');
CREATE INDEX ix_grants_user ON grants (user_id, created_at);
CREATE INDEX ix_grants_session ON grants (session_id) WHERE revoked_at IS NULL;
CREATE INDEX ix_approvals_shown ON approvals (project_id, created_at) WHERE unseen IS NOT NULL;
CREATE INDEX ix_tool_executions_changes ON tool_executions (project_id, tool_name, approved_at) WHERE risk_level <> 'LOW';
CREATE INDEX ix_tool_executions_deadline ON tool_executions (deadline) WHERE status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING');
CREATE INDEX ix_tool_executions_open ON tool_executions (project_id, status) WHERE status IN ('PENDING', 'AWAITING_APPROVAL', 'APPROVED', 'EXECUTING');
CREATE INDEX ix_runs_ready ON runs (created_at, id) WHERE state = 'READY';
CREATE INDEX ix_runs_order ON runs (session_id, position) WHERE state IN ('READY', 'RUNNING', 'WAITING');
CREATE INDEX ix_replaced_texts_user ON replaced_texts (user_id, size);
CREATE INDEX ix_replaced_texts_created ON replaced_texts (created_at);
CREATE INDEX ix_approvals_rejected ON approvals (session_id) WHERE status = 'rejected';
CREATE INDEX ix_ended_sign_ins_good_until ON ended_sign_ins (good_until);
CREATE INDEX ix_tool_executions_project ON tool_executions (project_id, id);
CREATE INDEX ix_approvals_project ON approvals (project_id, id);
CREATE INDEX ix_messages_project ON messages (project_id, id);
COMMIT;
