-- The tables. docs/design/postgres-storage.md explains why there are several, and in which order
-- their rows are locked.
-- oldest: 1

-- A role that may not create schemas can use one that exists.
DO $body$ BEGIN IF to_regnamespace({schema_text}) IS NULL THEN CREATE SCHEMA IF NOT EXISTS {schema}; END IF; END $body$;

-- All jobs. No index has a column that completion changes, so completing a job is a HOT update.
-- Hence `resting`: the status again, but only of blocked, failed, cancelled and expired jobs. Jobs
-- are created and completed in batches, and a whole page of them is rewritten at once: the fill
-- factor leaves room for each of them twice.
CREATE TABLE {job} (
    id uuid PRIMARY KEY,
    type_name text NOT NULL,
    chain_id uuid NOT NULL,
    chain_type text NOT NULL,
    chain_index integer NOT NULL,
    input json NOT NULL,
    output json,
    status text NOT NULL,
    resting text,
    priority integer NOT NULL,
    created_at timestamptz NOT NULL,
    scheduled_at timestamptz NOT NULL,
    completed_at timestamptz,
    completed_by text,
    continued_to uuid,
    attempt integer NOT NULL DEFAULT 0,
    last_attempt_at timestamptz,
    last_error json,
    deadline timestamptz,
    dedup_key text,
    blocker_count integer NOT NULL DEFAULT 0,
    blockers_left integer NOT NULL DEFAULT 0,
    dependents integer NOT NULL DEFAULT 0,
    trace_context text,
    chain_trace_context text
) WITH (fillfactor = 40, autovacuum_vacuum_scale_factor = 0.05, autovacuum_analyze_scale_factor = 0.05);

-- get_chains, list_chain_jobs: the jobs of a chain in their order, the current one last.
CREATE UNIQUE INDEX {job_chain} ON {job} (chain_id, chain_index);
-- list_jobs by type.
CREATE INDEX {job_type} ON {job} (type_name, id);
-- list_chains, by type too: first jobs only.
CREATE INDEX {job_first} ON {job} (type_name, id) WHERE chain_index = 0;
-- list_jobs and list_chains by one of these statuses, and stats.
CREATE INDEX {job_resting} ON {job} (resting, id) WHERE resting IS NOT NULL;
CREATE INDEX {job_resting_type} ON {job} (type_name, resting, id) WHERE resting IS NOT NULL;
CREATE INDEX {job_resting_chain} ON {job} (chain_type, resting, id) WHERE resting IS NOT NULL;

-- Pending jobs that are due, in the order of claims. Rows are inserted and deleted, never updated.
CREATE TABLE {ready} (
    type_name text NOT NULL,
    priority integer NOT NULL,
    scheduled_at timestamptz NOT NULL,
    id uuid NOT NULL,
    PRIMARY KEY (type_name, priority, scheduled_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Pending jobs that are not due yet: a claim moves them to `ready` when they are.
CREATE TABLE {later} (
    type_name text NOT NULL,
    scheduled_at timestamptz NOT NULL,
    id uuid NOT NULL,
    priority integer NOT NULL,
    PRIMARY KEY (type_name, scheduled_at, id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 5000);

-- Claimed jobs. The row is the fence: only the claim with this token may settle the job. While a
-- job is in here, its status in `job` is still 'pending'.
CREATE TABLE {running} (
    job_id uuid PRIMARY KEY,
    token bigint NOT NULL,
    type_name text NOT NULL,
    worker text NOT NULL,
    leased_until timestamptz NOT NULL,
    started_at timestamptz NOT NULL
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_cost_delay = 0);

-- Which chains a job waits for.
CREATE TABLE {blocker} (
    job_id uuid NOT NULL,
    position integer NOT NULL,
    chain_id uuid NOT NULL,
    trace_context text,
    PRIMARY KEY (job_id, position)
);

-- The jobs that wait for a chain: settle, delete_chains, list_blocked_jobs, list_chains(root_only).
CREATE INDEX {blocker_chain} ON {blocker} (chain_id, job_id);

-- The latest chain started under each deduplication key.
CREATE TABLE {key} (
    chain_type text NOT NULL,
    key text NOT NULL,
    chain_id uuid NOT NULL,
    PRIMARY KEY (chain_type, key)
);

-- delete_chains.
CREATE INDEX {key_chain} ON {key} (chain_id);

CREATE SEQUENCE {token} AS bigint CACHE 50;
