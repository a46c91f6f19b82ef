-- The installed sets of functions, and a view of all jobs for other tools.
-- oldest: 6

-- `schema_version`: the version of the database when a library that uses the set last installed or
-- checked it. A set is dropped two versions later.
CREATE TABLE {function_set} (
    digest text PRIMARY KEY,
    schema_version integer NOT NULL,
    functions text[] NOT NULL,
    installed_at timestamptz NOT NULL DEFAULT now()
);

-- Until version 6 the functions were part of the migrations and had no digest in their names. They
-- are kept, like any older set, for processes that still use them.
INSERT INTO {function_set} (digest, schema_version, functions)
SELECT '', 6, array_agg('{prefix}' || name)
FROM unnest(ARRAY[
    'lock_in_flight', 'lock_jobs', 'land', 'launch', 'lock_current', 'check_edges', 'count_edges', 'add_edges', 'unblock',
    'blockers_of', 'read_jobs', 'read_chains', 'next_available_in', 'insert_jobs', 'take_key', 'create_or_raise',
    'create_jobs', 'begin_chains', 'promote', 'change_room', 'marks', 'claim', 'renew', 'hold', 'reap', 'complete',
    'settle', 'get_chains_locked', 'trigger', 'retry', 'chains_to_delete', 'delete_chains'
]) AS name
WHERE to_regclass({version_6_text}) IS NOT NULL
HAVING count(*) > 0;

-- Part of the public promise: see docs/postgres.md.
CREATE VIEW {jobs} AS
SELECT
    j.id,
    j.type_name AS job_type,
    CASE WHEN r.job_id IS NULL THEN j.status ELSE 'running' END AS status,
    j.chain_id,
    j.chain_type,
    j.chain_index,
    j.priority,
    j.attempt + (r.job_id IS NOT NULL)::integer AS attempt_number,
    j.created_at,
    j.scheduled_at,
    coalesce(r.started_at, j.last_attempt_at) AS last_attempt_at,
    j.completed_at,
    j.completed_by,
    j.continued_to,
    r.worker AS leased_by,
    r.leased_until,
    j.deadline,
    j.dedup_key,
    j.blockers_left,
    j.input,
    j.output,
    j.last_error
FROM {job} AS j LEFT JOIN {running} AS r ON r.job_id = j.id;
