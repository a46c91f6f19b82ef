-- What a job was like before its claim, for a job that is put back because its handler did not begin.
-- oldest: 1

-- last_attempt_at before the claim. Only valid while the job is running.
ALTER TABLE {prefix}job ADD COLUMN earlier_attempt_at INTEGER;
