-- Storing jobs. Locks: the in-flight rows of chains that are found under a key before they begin,
-- by id; rows of `key` by type and key; then the rows of those chains and the current jobs of
-- blocking chains by id.

-- Each list is sent as one text: in every driver that costs a tenth of an array. JSON texts contain
-- no control characters, so one can separate them.
-- write: begin
SELECT {begin_chains}(
    string_to_array(:ids::text, ',')::uuid[], :type::text, :priority::integer, string_to_array(:inputs::text, E'\x1e'),
    string_to_array(:lanes::text, E'\x1e')
);

-- write: begin_one
SELECT {begin_one}(:id::uuid, :type::text, :priority::integer, :input::text);

-- write: create
SELECT id, status, ready, existing, problem, place FROM {create_jobs}(
    :ids::text[], :types::text[], :chains::text[], :chain_types::text[], :indexes::integer[], :inputs::text[],
    :priorities::integer[], :at::timestamptz[], :after::double precision[], :deadline_at::timestamptz[],
    :deadline_after::double precision[], :traces::text[], :chain_traces::text[],
    :keys::text[], :key_rules::text[], :key_windows::double precision[], :key_excludes::text[],
    :edge_places::integer[], :edge_chains::text[], :edge_types::text[], :edge_within::integer[], :edge_traces::text[],
    :lanes::text[], :weights::double precision[]
);

-- The same, and the chains that were found under their keys.
-- write: create_keyed
SELECT made.id, made.status, made.ready, made.existing, made.problem, made.place, chain.* FROM {create_jobs}(
    :ids::text[], :types::text[], :chains::text[], :chain_types::text[], :indexes::integer[], :inputs::text[],
    :priorities::integer[], :at::timestamptz[], :after::double precision[], :deadline_at::timestamptz[],
    :deadline_after::double precision[], :traces::text[], :chain_traces::text[],
    :keys::text[], :key_rules::text[], :key_windows::double precision[], :key_excludes::text[],
    :edge_places::integer[], :edge_chains::text[], :edge_types::text[], :edge_within::integer[], :edge_traces::text[],
    :lanes::text[], :weights::double precision[]
) AS made
LEFT JOIN LATERAL (
    SELECT found.* FROM {read_chains}(ARRAY[made.existing]) AS found WHERE made.existing IS NOT NULL
) AS chain ON true;

-- Give jobs that this transaction holds another input and time. Locks the jobs by id.
-- write: replace
SELECT * FROM {swap_waiting}(
    :ids::text[], :windows::double precision[], :inputs::text[], :priorities::integer[], :at::timestamptz[],
    :after::double precision[], :deadline_at::timestamptz[], :deadline_after::double precision[], :lanes::text[],
    :weights::double precision[]
);
