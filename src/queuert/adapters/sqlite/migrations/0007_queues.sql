-- The queue that a running job was claimed through.
-- oldest: 1

-- Caps count by it. NULL: not running, or claimed by an older version.
ALTER TABLE {prefix}job ADD COLUMN queue TEXT;
