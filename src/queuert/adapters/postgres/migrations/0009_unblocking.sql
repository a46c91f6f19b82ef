-- Freeing very many dependents in several transactions.
-- oldest: 6

-- Chains that are completed, but have dependents that still wait. Each edge of the chain to a job
-- from `next_id` on is still to be counted down (index blocker_chain). Almost always empty.
CREATE TABLE {unblocking} (
    chain_id uuid PRIMARY KEY,
    next_id uuid NOT NULL
);

-- True: the chain was completed when the job was stored, so the job never waited for it. Unknown for
-- edges that older versions have written.
ALTER TABLE {blocker} ADD COLUMN done boolean;
