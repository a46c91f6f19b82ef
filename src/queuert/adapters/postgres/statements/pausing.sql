-- Pausing and resuming. The table is almost always empty. Only the rows that are changed are locked,
-- and claims do not wait for them.

-- A target that is paused already keeps its `since`. Pauses that have ended by themselves are
-- deleted, unless they are locked. Primary key.
-- write: pause
WITH this AS MATERIALIZED (SELECT {clock} AS now), gone AS (
    DELETE FROM {pause} WHERE ctid IN (
        SELECT ended.ctid FROM {pause} AS ended CROSS JOIN this
        WHERE ended.until <= this.now AND (ended.scope, ended.name) <> (:scope::text, :target::text)
        FOR UPDATE OF ended SKIP LOCKED
    )
)
INSERT INTO {pause} AS p (scope, name, since, until, reason, paused_by, cancel_running)
SELECT :scope::text, :target::text, this.now, coalesce(:at::timestamptz, this.now + make_interval(secs => :after::double precision)),
    :reason::text, :by::text, :cancel_running::boolean
FROM this
ON CONFLICT (scope, name) DO UPDATE SET
    since = CASE WHEN p.until <= excluded.since THEN excluded.since ELSE p.since END,
    until = excluded.until,
    reason = excluded.reason,
    paused_by = excluded.paused_by,
    cancel_running = excluded.cancel_running
RETURNING p.scope, p.name, p.since, p.until, p.reason, p.paused_by, p.cancel_running;

-- Primary key.
-- write: resume
DELETE FROM {pause} WHERE scope = :scope::text AND name = :target::text
RETURNING scope, name, since, until, reason, paused_by, cancel_running, coalesce(until > {clock}, true);

-- read: list
SELECT scope, name, since, until, reason, paused_by, cancel_running FROM {pause} WHERE until IS NULL OR until > {clock};
