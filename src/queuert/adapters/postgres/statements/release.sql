-- Giving back jobs that a worker does not know of. Locked rows are skipped.

-- write: unknown
SELECT * FROM {read_jobs}(ARRAY(SELECT {release}(:worker::text, :held::text[], :statistics::boolean)));
