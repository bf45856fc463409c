-- The statements of Traces, written as those of ledger.sql are.

-- name: create
-- Names that dlt gives a trace which it loads itself, so that either finds a table that the other has made.
CREATE TABLE IF NOT EXISTS {traces} (
    transaction_id TEXT,
    pipeline_name TEXT,
    started_at TIMESTAMPTZ,
    finished_at TIMESTAMPTZ,
    steps JSON,
    _dlt_load_id TEXT NOT NULL,
    _dlt_id TEXT NOT NULL
)

-- name: write
INSERT INTO {traces} (transaction_id, pipeline_name, started_at, finished_at, steps, _dlt_load_id, _dlt_id)
VALUES (:transaction_id, :pipeline_name, :started_at, :finished_at, :steps, :load_id, :row_id)
