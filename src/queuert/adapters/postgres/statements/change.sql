-- Changing chains from outside. Locks: in-flight rows by id, then jobs by id.

-- write: trigger
SELECT job.* FROM {trigger}(:ids::text[]) AS changed CROSS JOIN LATERAL {get_jobs_locked}(ARRAY[changed]) AS job;

-- write: retry
SELECT job.* FROM {retry}(:ids::text[]) AS changed CROSS JOIN LATERAL {get_jobs_locked}(ARRAY[changed]) AS job;

-- write: delete
SELECT * FROM {delete_chains}(:ids::text[], :cascade::boolean);
