-- Who did what by hand.
-- oldest: 6

-- `chain_id` is the chain that was changed, or that of a bulk operation. `details` is a JSON object.
CREATE TABLE {audit} (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at timestamptz NOT NULL,
    action text NOT NULL,
    target text NOT NULL,
    chain_id text,
    done_by text,
    reason text,
    details text
);

-- list_audit of one chain.
CREATE INDEX {audit_chain} ON {audit} (chain_id, id) WHERE chain_id IS NOT NULL;
