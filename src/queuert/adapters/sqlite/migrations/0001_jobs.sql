-- The tables, and the indexes that the engine itself works with.
-- oldest: 1
--
-- Times are microseconds since 1970 in UTC, JSON is text. The long columns come last: SQLite reads
-- a row from its beginning, and most statements need none of them. Every update of a job rewrites
-- the indexes whose columns change, so the comment on each index names the statements that need it.
--
-- ready: 1 for a pending job that is due, 0 for a pending job that is not due yet, NULL for any
-- other job. `claim.promote` turns 0 into 1. Without this column, future jobs of an urgent priority
-- would come before the ready ones in the index.

CREATE TABLE {prefix}job (
    id TEXT NOT NULL PRIMARY KEY,
    type_name TEXT NOT NULL,
    chain_id TEXT NOT NULL,
    chain_type TEXT NOT NULL,
    chain_index INTEGER NOT NULL,
    status TEXT NOT NULL,
    ready INTEGER,
    priority INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    scheduled_at INTEGER NOT NULL,
    completed_at INTEGER,
    completed_by TEXT,
    continued_to TEXT,
    attempt INTEGER NOT NULL DEFAULT 0,
    last_attempt_at INTEGER,
    leased_by TEXT,
    leased_until INTEGER,
    token INTEGER,
    deadline INTEGER,
    dedup_key TEXT,
    blockers_left INTEGER NOT NULL DEFAULT 0,
    trace_context TEXT,
    chain_trace_context TEXT,
    input TEXT NOT NULL,
    output TEXT,
    last_error TEXT
) STRICT;

-- Finds a chain's current job (its highest index): get_chains, create_jobs, job_blockers,
-- list_chains, list_chain_jobs.
CREATE UNIQUE INDEX {prefix}job_chain ON {prefix}job (chain_id, chain_index);

-- claim.candidates, next_available_in, stats
CREATE INDEX {prefix}job_ready ON {prefix}job (type_name, priority, scheduled_at, id) WHERE ready = 1;

-- claim.promote, next_available_in, stats
CREATE INDEX {prefix}job_scheduled ON {prefix}job (type_name, scheduled_at) WHERE ready = 0;

-- reap.ended, claim.running, stats
CREATE INDEX {prefix}job_running ON {prefix}job (type_name, leased_until) WHERE status = 'running';

-- The chains that a job waits or waited for. No statement relies on the foreign keys: a caller's
-- own connection may have them switched off. They catch mistakes in our code and in SQL that is
-- typed by hand.
CREATE TABLE {prefix}blocker (
    job_id TEXT NOT NULL REFERENCES {prefix}job (id),
    position INTEGER NOT NULL,
    chain_id TEXT NOT NULL REFERENCES {prefix}job (id),
    trace_context TEXT,
    PRIMARY KEY (job_id, position)
) STRICT, WITHOUT ROWID;

-- settle.unblock, delete_chains, list_blocked_jobs; unique, because a job waits for a chain once.
CREATE UNIQUE INDEX {prefix}blocker_chain ON {prefix}blocker (chain_id, job_id);

-- The chain that was started last under a key.
CREATE TABLE {prefix}dedup (
    chain_type TEXT NOT NULL,
    key TEXT NOT NULL,
    chain_id TEXT NOT NULL,
    PRIMARY KEY (chain_type, key)
) STRICT, WITHOUT ROWID;

-- The last claim token that was handed out.
CREATE TABLE {prefix}token (
    last INTEGER NOT NULL
) STRICT;

INSERT INTO {prefix}token (last) VALUES (0);
