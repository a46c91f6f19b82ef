-- The layouts that were compared before the PostgreSQL tables were decided. Each has the columns,
-- fences, deadlines and indexes of the real schema. See docs/design/postgres-storage.md.

-- (a) One table. Claim and settle each write a new version of the row, and an entry into every index.
CREATE TABLE a_job (
    id uuid PRIMARY KEY, type_name text NOT NULL, chain_id uuid NOT NULL, chain_type text NOT NULL,
    chain_index int NOT NULL, input json NOT NULL, output json, status text NOT NULL DEFAULT 'pending',
    ready boolean, priority int NOT NULL DEFAULT 100, created_at timestamptz NOT NULL DEFAULT now(),
    scheduled_at timestamptz NOT NULL DEFAULT now(), completed_at timestamptz, completed_by text, continued_to uuid,
    attempt int NOT NULL DEFAULT 0, last_attempt_at timestamptz, last_error json, leased_by text,
    leased_until timestamptz, token bigint, deadline timestamptz, dedup_key text, blockers_left int NOT NULL DEFAULT 0
) WITH (fillfactor = 75, autovacuum_enabled = off);
CREATE UNIQUE INDEX ON a_job (chain_id, chain_index);
CREATE INDEX ON a_job (type_name, id);
CREATE INDEX a_ready ON a_job (type_name, priority, scheduled_at, id) WHERE ready;
CREATE INDEX a_running ON a_job (type_name, leased_until) WHERE status = 'running';
CREATE INDEX ON a_job (status, id) WHERE status <> 'completed';
CREATE SEQUENCE a_token CACHE 100;

-- (b) The job is written when it is created and when it ends. Jobs in flight live in two small tables.
CREATE TABLE b_job (
    id uuid PRIMARY KEY, type_name text NOT NULL, chain_id uuid NOT NULL, chain_type text NOT NULL,
    chain_index int NOT NULL, input json NOT NULL, output json, status text NOT NULL DEFAULT 'pending',
    resting text, priority int NOT NULL DEFAULT 100, created_at timestamptz NOT NULL DEFAULT now(),
    scheduled_at timestamptz NOT NULL DEFAULT now(), completed_at timestamptz, completed_by text, continued_to uuid,
    attempt int NOT NULL DEFAULT 0, last_attempt_at timestamptz, last_error json, deadline timestamptz,
    dedup_key text, blockers_left int NOT NULL DEFAULT 0
) WITH (fillfactor = 40, autovacuum_enabled = off);
CREATE UNIQUE INDEX ON b_job (chain_id, chain_index);
CREATE INDEX ON b_job (type_name, id);
-- No index of b_job may contain a column that completion changes. Then the change needs no index entry
-- (HOT).
CREATE INDEX ON b_job (resting, id) WHERE resting IS NOT NULL;
CREATE TABLE b_ready (
    type_name text NOT NULL, priority int NOT NULL, scheduled_at timestamptz NOT NULL, id uuid NOT NULL,
    attempt int NOT NULL, PRIMARY KEY (type_name, priority, scheduled_at, id)
) WITH (autovacuum_enabled = off);
CREATE TABLE b_running (
    job_id uuid PRIMARY KEY, token bigint NOT NULL, type_name text NOT NULL, worker text NOT NULL,
    leased_until timestamptz NOT NULL, attempt int NOT NULL, started_at timestamptz NOT NULL
) WITH (autovacuum_enabled = off);
CREATE SEQUENCE b_token CACHE 100;

-- (c) As (b), with one lease row for a whole claim instead of a running row for each job.
CREATE TABLE c_job (LIKE b_job INCLUDING ALL) WITH (fillfactor = 40, autovacuum_enabled = off);
CREATE TABLE c_ready (LIKE b_ready INCLUDING ALL) WITH (autovacuum_enabled = off);
CREATE TABLE c_lease (
    token bigint PRIMARY KEY, worker text NOT NULL, leased_until timestamptz NOT NULL, started_at timestamptz NOT NULL,
    ids uuid[] NOT NULL, attempts int[] NOT NULL
) WITH (autovacuum_enabled = off);
CREATE SEQUENCE c_token CACHE 100;

CREATE TABLE blocker (
    job_id uuid NOT NULL, position int NOT NULL, chain_id uuid NOT NULL, PRIMARY KEY (job_id, position)
);
CREATE INDEX ON blocker (chain_id, job_id);

CREATE FUNCTION nth_id(n bigint) RETURNS uuid LANGUAGE sql IMMUTABLE
    AS $$ SELECT ('01890000-0000-7000-8000-' || lpad(to_hex(n), 12, '0'))::uuid $$;
