-- Archiving what has been kept long enough.

-- Which of the types have chains that wait to be archived. Index kept_archive.
-- read: waiting
SELECT asked.type_name FROM unnest(:types::text[]) AS asked (type_name)
WHERE EXISTS (SELECT FROM {kept} AS k WHERE k.archive = asked.type_name OFFSET 0);

-- write: take
SELECT {take_archive}(:type::text, :limit::integer)::text[];

-- Index job_chain.
-- read: jobs
SELECT {job_columns} FROM unnest(:chains::text[]) AS asked (id)
JOIN {job} AS j ON j.chain_id = asked.id::uuid LEFT JOIN {running} AS r ON r.job_id = j.id
ORDER BY j.chain_id, j.chain_index;

-- Primary key of `blocker`.
-- read: blockers
SELECT b.job_id::text, b.chain_id::text FROM {blocker} AS b WHERE b.job_id = ANY (:jobs::text[]::uuid[])
ORDER BY b.job_id, b.position;

-- Primary key.
-- read: attempts
SELECT a.job_id::text, a.number, a.outcome, a.begun_at, a.ended_at, a.worker, a.code, a.message FROM {attempt} AS a
WHERE a.job_id = ANY (:jobs::text[]::uuid[]) ORDER BY a.job_id, a.ended_at, a.number;

-- write: delete
SELECT {drop_archived}(:chains::text[]::uuid[]);

-- write: store
INSERT INTO {archive} (chain_id, chain_type, status, created_at, ended_at, archived_at, place, chain)
SELECT a.chain_id::uuid, a.chain_type, a.status, a.created_at, a.ended_at, {clock}, a.place, a.chain::jsonb
FROM unnest(
    :ids::text[], :types::text[], :statuses::text[], :created::timestamptz[], :ended::timestamptz[], :places::text[], :chains::text[]
) AS a (chain_id, chain_type, status, created_at, ended_at, place, chain);

-- write: tend
SELECT {tend_archive}();

-- Index archive_chain, of each month.
-- read: get
SELECT chain_id::text, chain_type, status, created_at, ended_at, archived_at, place, chain::text FROM {archive}
WHERE chain_id = ANY (:ids::text[]::uuid[]) ORDER BY archived_at;

-- write: failed
UPDATE {retention} SET archive_error = :error::text, archive_failed_at = CASE WHEN :error::text IS NOT NULL THEN {clock} END
WHERE type_name = :type::text AND (archive_error IS NOT NULL OR :error::text IS NOT NULL);
