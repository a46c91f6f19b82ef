-- Limits by key.

-- write: take
SELECT * FROM {claim_limited}(
    :worker::text, :limit::integer, :beside::integer, :types::text[], :queues::integer[], :limits::integer[], :leases::double precision[],
    :pair_types::integer[], :pair_names::text[], :queue_names::text[], :queue_priorities::integer[], :queue_caps::integer[],
    :member_queues::integer[], :member_types::text[], :cluster_cap::integer, :cursors::text,
    :first_token::bigint, :statistics::boolean
);

-- write: declare
SELECT name, types FROM {declare_limits}(
    :types::text[], :names::text[], :digests::text[], :rules::text[], :limit_types::text[], :alive_for::double precision
);

-- Claims have to look at this lane.
-- write: look
INSERT INTO {news} (lane, kind) VALUES (:lane::text, 0);

-- write: change
SELECT {change_limit}(:lane::text, :limit_name::text, :rule::text);

-- write: clear
SELECT {clear_limit}(:lane::text, :limit_name::text);

-- How many jobs of a lane come before this one. Primary key.
-- read: before
SELECT count(*) FROM (
    SELECT FROM {line} AS e WHERE e.lane = :lane::text AND (e.priority, e.scheduled_at, e.id) < (:priority::integer, :at::timestamptz, :id::uuid)
    LIMIT :counted::integer
) AS counted;

-- read: list
SELECT lane, rule, is_set, running, waiting, opens_at, holder, held_by FROM {list_limits}(:limit::integer, :after::text, :exactly::text, :counted::integer);
