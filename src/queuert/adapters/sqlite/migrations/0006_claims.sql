-- Jobs that are put back because their handlers did not begin: what they were like before the claim.
-- oldest: 1

-- last_attempt_at before the claim. Only valid while the job is running.
ALTER TABLE {prefix}job ADD COLUMN earlier_attempt_at INTEGER;
