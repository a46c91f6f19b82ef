-- Claiming, renewing, holding and reaping. Locked rows are skipped, except by `hold`. Claims under
-- one cap wait for each other by an advisory lock.

-- write: take
SELECT * FROM {claim}(
    :worker::text, :limit::integer, :types::text[], :queues::integer[], :limits::integer[], :leases::double precision[],
    :queue_names::text[], :queue_priorities::integer[], :queue_caps::integer[], :member_queues::integer[],
    :member_types::text[], :cluster_cap::integer, :positions::text, :at_once::integer, :first_ordinal::bigint,
    :first_token::bigint, :statistics::boolean
);

-- write: renew
SELECT id FROM {renew}(:ids::text[], :tokens::bigint[], :durations::double precision[]);

-- write: hold
SELECT true WHERE {hold}(:id::text::uuid, :token::bigint, :lock::boolean);

-- write: reap
SELECT * FROM {read_jobs}(ARRAY(
    SELECT {reap}(:types::text[], :ignored::text[], :limit::integer, :error::text, :dead::text[], :code::text, :message::text,
        :statistics::boolean, :delays::double precision[], :kinds::integer)
));

-- write: begin_alone
SELECT true WHERE {begin_alone}(:id::text::uuid, :token::bigint);
