-- How long things took, in buckets that are a tenth wide.
-- oldest: 1

-- The fine buckets in this one: a JSON object with their counts (see queuert.history). They may be
-- fewer than `number`: older versions do not count them.
ALTER TABLE {prefix}history ADD COLUMN fine TEXT;
