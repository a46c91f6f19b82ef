-- Changing chains from outside. Locks: in-flight rows by id, then jobs by id.

-- write: trigger
SELECT * FROM {read_jobs}(ARRAY(SELECT {trigger}(:ids::text[])));

-- write: retry
SELECT * FROM {read_jobs}(ARRAY(SELECT {retry}(:ids::text[])));

-- write: delete
SELECT * FROM {delete_chains}(:ids::text[], :cascade::boolean);
