-- Deleting what has been kept long enough.

-- write: store
SELECT {store_policies}(
    :types::text[], :completed::double precision[], :failed::double precision[], :cancelled::double precision[],
    :expired::double precision[], :archived::boolean[]
);

-- write: prune
SELECT kind, type_name, chains, jobs, took, behind, kept FROM {prune}(
    :limit::integer, :exact::boolean, :lap::double precision, :restart::boolean, :archives::text[]
);

-- read: policies
SELECT type_name, completed, failed, cancelled, expired, archived, stored_at, walked::text FROM {retention}
ORDER BY type_name COLLATE "C";

-- Notes are counted up to a limit. Primary key.
-- read: state
SELECT (SELECT count(*) FROM (SELECT FROM {kept} LIMIT :counted::integer) AS counted), state.*
FROM (SELECT max(pruned_at), max(lap_began_at), max(CASE WHEN lap_type IS NULL THEN lap_ended_at END) FROM {pruning}) AS state;
