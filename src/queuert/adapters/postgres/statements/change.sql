-- Changing chains from outside. Locks: in-flight rows by id, then jobs by id.

-- write: trigger
SELECT * FROM {read_jobs}(ARRAY(SELECT {trigger}(:ids::text[])));

-- write: retry
SELECT * FROM {read_jobs}(ARRAY(SELECT {retry}(:ids::text[], :statistics::boolean)));

-- write: set_priority
SELECT * FROM {read_jobs}(ARRAY(SELECT {set_priority}(:ids::text[], :priority::integer)));

-- write: cancel
SELECT * FROM {cancel_chains}(:ids::text[], :cascade::boolean, :statistics::boolean);

-- write: delete
SELECT * FROM {delete_chains}(:ids::text[], :cascade::boolean, :statistics::boolean);

-- write: repair
SELECT * FROM {read_jobs}(ARRAY(
    SELECT {repair}(
        :id::text, :input::text, :deadline_at::timestamptz, :deadline_after::double precision, :lane::text, :weight::double precision,
        :statistics::boolean
    )
));
