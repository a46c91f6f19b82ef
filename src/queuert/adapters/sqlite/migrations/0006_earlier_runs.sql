-- What a claim replaces, so that a claim that is given back leaves no trace.
-- oldest: 1

-- last_attempt_at before the last claim: NULL if no run had begun before it.
ALTER TABLE {prefix}job ADD COLUMN previous_attempt_at INTEGER;
