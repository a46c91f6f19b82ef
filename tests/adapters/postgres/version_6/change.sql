-- Changing chains from outside. Locks: in-flight rows by id, then jobs by id.

-- write: trigger
SELECT * FROM "public"."queuert_read_jobs"(ARRAY(SELECT "public"."queuert_trigger"(:ids::text[])));

-- write: retry
SELECT * FROM "public"."queuert_read_jobs"(ARRAY(SELECT "public"."queuert_retry"(:ids::text[])));

-- write: delete
SELECT * FROM "public"."queuert_delete_chains"(:ids::text[], :cascade::boolean);
