-- Ending jobs, putting them back, storing continuations, freeing dependents.

-- Each list is sent as one text: in every driver that costs a tenth of an array. JSON texts contain
-- no control characters, so one can separate them.
-- write: complete
SELECT kind, place, id, type_name, ready FROM {complete}(
    string_to_array(:ids::text, ',')::uuid[], string_to_array(:tokens::text, ',')::bigint[],
    string_to_array(:texts::text, E'\x1e'), :worker::text,
    string_to_array(:next_ids::text, ',', '')::uuid[], string_to_array(:next_types::text, E'\x1e'),
    string_to_array(:next_priorities::text, ',')::integer[], :next_traces::text[], :next_chain_traces::text[],
    :most::integer, string_to_array(:discard::text, ',')::boolean[], :statistics::boolean,
    :next_lanes::text[]
);

-- write: complete_last
SELECT {complete_last}(
    :id::uuid, :token::bigint, :text::text, :worker::text, :next_id::uuid, :next_type::text, :next_priority::integer,
    :next_trace::text, :next_chain_trace::text, :discard::boolean, :statistics::boolean, :next_lane::text
);

-- write: complete_one
SELECT {complete_one}(:id::uuid, :token::bigint, :output::text, :worker::text, :statistics::boolean);

-- write: settle
SELECT kind, place, id, type_name, status, ready, problem FROM {settle}(
    :ids::text[], :tokens::bigint[], :statuses::text[], :outputs::text[], :errors::text[], :at::timestamptz[],
    :after::double precision[], :uncounted::boolean[], :give_back::boolean[], :workers::text[],
    :next_positions::integer[], :next_ids::text[], :next_types::text[], :next_inputs::text[], :next_priorities::integer[],
    :next_at::timestamptz[], :next_after::double precision[], :next_deadline_at::timestamptz[],
    :next_deadline_after::double precision[], :next_traces::text[], :next_chain_traces::text[],
    :edge_places::integer[], :edge_chains::text[], :edge_types::text[], :edge_within::integer[], :edge_traces::text[],
    :most::integer, :discard::boolean[], :codes::text[], :messages::text[], :statistics::boolean,
    :next_lanes::text[], :closes::double precision[], :next_weights::double precision[]
);

-- write: unblock_more
SELECT id, type_name, ready, more FROM {unblock_more}(:limit::integer);
