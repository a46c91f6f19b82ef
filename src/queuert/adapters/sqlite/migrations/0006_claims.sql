-- Jobs that are put back because their handlers did not begin: what they were like before the claim,
-- and where the worker stored which handlers may have begun.
-- oldest: 1

-- last_attempt_at before the claim. Only valid while the job is running.
ALTER TABLE {prefix}job ADD COLUMN earlier_attempt_at INTEGER;

-- 1: the horizon is in a file beside the database, or in `horizon`, whichever is greater.
ALTER TABLE {prefix}worker ADD COLUMN has_file INTEGER NOT NULL DEFAULT 0;
