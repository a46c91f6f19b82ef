-- Deleting what has been kept long enough.

-- write: store
SELECT {store_policies}(
    :types::text[], :completed::double precision[], :failed::double precision[], :cancelled::double precision[],
    :expired::double precision[], :archived::boolean[], :months::integer[]
);

-- write: prune
SELECT kind, type_name, chains, jobs, took, behind, kept FROM {prune}(
    :limit::integer, :exact::boolean, :lap::double precision, :restart::boolean
);

-- Index kept_archive.
-- read: policies
SELECT r.type_name, r.completed, r.failed, r.cancelled, r.expired, r.archived, r.months, r.stored_at, r.walked::text, (
    SELECT count(*) FROM (SELECT FROM {kept} AS k WHERE k.archive = r.type_name LIMIT :counted::integer) AS counted
), r.archive_error, r.archive_failed_at FROM {retention} AS r ORDER BY r.type_name COLLATE "C";

-- Notes are counted up to a limit. Primary key.
-- read: state
SELECT (SELECT count(*) FROM (SELECT FROM {kept} LIMIT :counted::integer) AS counted), state.*
FROM (SELECT max(pruned_at), max(lap_began_at), max(CASE WHEN lap_type IS NULL THEN lap_ended_at END) FROM {pruning}) AS state;
