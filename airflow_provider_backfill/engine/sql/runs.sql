-- The statements of Runs, written as those of ledger.sql are.

-- name: create
-- The columns of dlt-ops 0.1.0, in its order.
CREATE TABLE IF NOT EXISTS {runs} (
    pipeline_name TEXT NOT NULL,
    source_section TEXT NOT NULL,
    resource_name TEXT,
    destination TEXT NOT NULL,
    dataset TEXT NOT NULL,
    run_id TEXT NOT NULL,
    dlt_run_id TEXT,
    backfill_id TEXT,
    trigger_source TEXT NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    completed_at TIMESTAMPTZ,
    status TEXT NOT NULL,
    records_extracted BIGINT,
    records_loaded BIGINT,
    error_summary TEXT
)

-- name: begin
INSERT INTO {runs} (
    pipeline_name, source_section, resource_name, destination, dataset, run_id, backfill_id, trigger_source,
    started_at, status
)
VALUES (
    :source_section, :source_section, :resource_name, :destination, :dataset, :run_id, :backfill_id, 'backfill',
    {now}, 'running'
)
RETURNING started_at

-- name: interrupted
-- An attempt that was killed, or lost its claim, never says how it ended.
UPDATE {runs} SET status = 'failed', completed_at = {now}, error_summary = :reason
WHERE run_id = :run_id AND source_section = :source_section AND backfill_id = :backfill_id AND status = 'running'

-- name: end
UPDATE {runs} SET
    status = :status, completed_at = {now}, dlt_run_id = :dlt_run_id, records_extracted = :records_extracted,
    records_loaded = :records_loaded, error_summary = :error_summary
WHERE run_id = :run_id AND source_section = :source_section AND backfill_id = :backfill_id AND status = 'running'
  AND started_at = :started_at

-- name: read
-- Attempts at chunks. A run of another tool that is none has no backfill.
SELECT backfill_id, run_id, status, started_at, completed_at, records_extracted, records_loaded, error_summary,
    dlt_run_id
FROM {runs} WHERE backfill_id IS NOT NULL ORDER BY started_at, run_id
