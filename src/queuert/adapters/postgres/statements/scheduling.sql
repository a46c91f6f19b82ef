-- Schedules. Each is found by its primary key, or by an index that is named here.

-- Locks nothing.
-- read: get
SELECT {clock}, s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared, s.definition::text, s.state::text
FROM (SELECT) AS this LEFT JOIN {schedule} AS s ON s.name = ANY (:names::text[]);

-- The same, locked. Locked rows are skipped. No order is needed: it does not wait.
-- write: lock
SELECT {clock}, s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared, s.definition::text, s.state::text
FROM {schedule} AS s WHERE s.name = ANY (:names::text[]) FOR UPDATE SKIP LOCKED;

-- Index of `incarnation`.
-- read: find
SELECT {clock}, s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared, s.definition::text, s.state::text
FROM {schedule} AS s WHERE s.incarnation = :incarnation::bigint;

-- read: list
SELECT {clock}, s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared, s.definition::text, s.state::text
FROM {schedule} AS s WHERE s.name > :after::text ORDER BY s.name LIMIT :limit::integer;

-- Index schedule_due.
-- read: due
SELECT read_at, next_in, name, incarnation, version, next_at, due_at, by_function, declared, definition, state
FROM {due_schedules}(:limit::integer, :functions::text[], false);

-- The same, locked. Locked rows are skipped.
-- write: lock_due
SELECT read_at, next_in, name, incarnation, version, next_at, due_at, by_function, declared, definition, state
FROM {due_schedules}(:limit::integer, :functions::text[], true);

-- write: save
SELECT {save_schedules}(
    :names::text[], :incarnations::bigint[], :versions::bigint[], :next_at::timestamptz[], :due_at::timestamptz[],
    :by_function::boolean[], :declared::boolean[], :definitions::text[], :states::text[]
);

-- Locks the rows in the order of their names.
-- write: delete
WITH chosen AS MATERIALIZED (
    SELECT s.name FROM {schedule} AS s WHERE s.name = ANY (:names::text[]) ORDER BY s.name FOR UPDATE
), forgotten AS (
    DELETE FROM {schedule_seen} WHERE schedule = ANY (:names::text[])
)
DELETE FROM {schedule} AS s USING chosen WHERE s.name = chosen.name
RETURNING {clock}, s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared, s.definition::text, s.state::text;

-- write: see
SELECT schedule, release, first_seen_at, seen_at
FROM {see_releases}(
    :schedules::text[], :releases::text[], :alive_for::double precision, :forget_after::double precision
);

-- Index schedule_declared.
-- read: undeclared
SELECT {clock}, s.name, s.incarnation, s.version, s.next_at, s.due_at, s.by_function, s.declared, s.definition::text, s.state::text
FROM (SELECT) AS this LEFT JOIN (
    SELECT d.* FROM {schedule} AS d
    WHERE d.declared AND d.name > :after::text AND NOT EXISTS (
        SELECT FROM {schedule_seen} AS r
        WHERE r.schedule = d.name AND r.seen_at >= (SELECT {clock} - make_interval(secs => :alive_for::double precision))
    )
    ORDER BY d.name LIMIT :limit::integer
) AS s ON true;
