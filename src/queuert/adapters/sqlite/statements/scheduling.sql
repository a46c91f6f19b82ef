-- Schedules. There is one writer, so nothing has to be locked.

-- By primary key.
-- read: get
SELECT s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared,
    CAST(s.definition AS BLOB), CAST(s.state AS BLOB)
FROM json_each(:names) AS asked JOIN {prefix}schedule AS s ON s.name = asked.value;

-- Index of `incarnation`.
-- read: find
SELECT s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared,
    CAST(s.definition AS BLOB), CAST(s.state AS BLOB)
FROM {prefix}schedule AS s WHERE s.incarnation = :incarnation;

-- By primary key.
-- read: list
SELECT s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared,
    CAST(s.definition AS BLOB), CAST(s.state AS BLOB)
FROM {prefix}schedule AS s WHERE s.name > :after ORDER BY s.name LIMIT :limit;

-- The first ones by time, due or not. Index schedule_due.
-- read: due
SELECT s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared,
    CAST(s.definition AS BLOB), CAST(s.state AS BLOB)
FROM {prefix}schedule AS s
WHERE s.due_at IS NOT NULL AND (NOT s.by_function OR s.name IN (SELECT value FROM json_each(:functions)))
ORDER BY s.due_at, s.name LIMIT :limit;

-- Index schedule_due.
-- read: next
SELECT s.due_at FROM {prefix}schedule AS s
WHERE s.due_at > :now AND (NOT s.by_function OR s.name IN (SELECT value FROM json_each(:functions)))
ORDER BY s.due_at LIMIT 1;

-- By primary key. Nothing is returned if the version is another one.
-- write: change
UPDATE {prefix}schedule SET
    version = version + 1, next_at = :next_at, due_at = :due_at, by_function = :by_function, definition = :definition,
    state = :state
WHERE name = :schedule AND version = :version
RETURNING 1;

-- write: add
INSERT INTO {prefix}schedule (name, incarnation, version, next_at, due_at, by_function, declared, definition, state)
VALUES (:schedule, :incarnation, 1, :next_at, :due_at, :by_function, :declared, :definition, :state)
ON CONFLICT (name) DO NOTHING
RETURNING 1;

-- By primary key.
-- write: delete
DELETE FROM {prefix}schedule WHERE name IN (SELECT value FROM json_each(:names))
RETURNING name, incarnation, version, next_at, due_at, by_function, declared, CAST(definition AS BLOB),
    CAST(state AS BLOB);

-- By primary key.
-- write: forget
DELETE FROM {prefix}schedule_seen WHERE schedule IN (SELECT value FROM json_each(:names));

-- By primary key.
-- write: see
INSERT INTO {prefix}schedule_seen (schedule, release, first_seen_at, seen_at)
SELECT value ->> 0, value ->> 1, :now, :now FROM json_each(:declared) WHERE true
ON CONFLICT (schedule, release) DO UPDATE SET
    first_seen_at = CASE WHEN {prefix}schedule_seen.seen_at < :alive_since THEN excluded.seen_at
        ELSE {prefix}schedule_seen.first_seen_at END,
    seen_at = excluded.seen_at;

-- By primary key.
-- write: forget_old
DELETE FROM {prefix}schedule_seen
WHERE schedule IN (SELECT value FROM json_each(:names)) AND seen_at < :seen_before;

-- By primary key.
-- read: releases
SELECT r.schedule, r.release, r.first_seen_at, r.seen_at FROM {prefix}schedule_seen AS r
WHERE r.schedule IN (SELECT value FROM json_each(:names)) ORDER BY r.schedule, r.release;

-- Index schedule_declared.
-- read: undeclared
SELECT s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared,
    CAST(s.definition AS BLOB), CAST(s.state AS BLOB)
FROM {prefix}schedule AS s
WHERE s.declared AND s.name > :after AND NOT EXISTS (
    SELECT 1 FROM {prefix}schedule_seen AS r WHERE r.schedule = s.name AND r.seen_at >= :alive_since
)
ORDER BY s.name LIMIT :limit;
