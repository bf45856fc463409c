-- The statements of RejectedRows, written as those of ledger.sql are.

-- name: create
-- The columns of dlt-ops 0.1.0, in its order.
CREATE TABLE IF NOT EXISTS {rejected} (
    pipeline_name TEXT NOT NULL,
    source_section TEXT NOT NULL,
    resource_name TEXT NOT NULL,
    run_id TEXT NOT NULL,
    assertion_type TEXT NOT NULL,
    assertion_params TEXT NOT NULL,
    violation TEXT NOT NULL,
    rejected_at TIMESTAMPTZ NOT NULL,
    row_json TEXT NOT NULL
)

-- name: supersede
-- A chunk that is loaded again rejects anew.
DELETE FROM {rejected} WHERE run_id = :run_id AND source_section = :source_section

-- name: publish
INSERT INTO {rejected} (
    pipeline_name, source_section, resource_name, run_id, assertion_type, assertion_params, violation, rejected_at,
    row_json
)
SELECT
    :source_section, :source_section, resource_name, :run_id, assertion_type, assertion_params, violation, {now},
    row_json
FROM {staged}
