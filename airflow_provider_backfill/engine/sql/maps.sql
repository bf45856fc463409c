-- The statements of TaskMaps, written as those of ledger.sql are.

-- name: create
CREATE TABLE IF NOT EXISTS {maps} (
    dag_id TEXT NOT NULL,
    dag_run_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    request TEXT NOT NULL,
    backfill_ids TEXT NOT NULL,
    chunk_ids TEXT NOT NULL,
    planned_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (dag_id, dag_run_id, task_id, request)
)

-- name: remember
INSERT INTO {maps} (dag_id, dag_run_id, task_id, request, backfill_ids, chunk_ids, planned_at)
VALUES (:dag_id, :dag_run_id, :task_id, :request, :backfill_ids, :chunk_ids, {now})

-- name: planned_again
-- The first list of a DAG run stays.
UPDATE {maps} SET planned_at = {now}
WHERE dag_id = :dag_id AND dag_run_id = :dag_run_id AND task_id = :task_id AND request = :request

-- name: recall
SELECT backfill_ids, chunk_ids FROM {maps}
WHERE dag_id = :dag_id AND dag_run_id = :dag_run_id AND task_id = :task_id AND request = :request

-- name: completed
-- The chunk over these bounds that this very task of this DAG run has completed.
SELECT backfill_id, chunk_id FROM {ledger}
WHERE dag_id = :dag_id AND dag_run_id = :dag_run_id AND task_id = :task_id
  AND coalesce(map_index, -1) = :map_index
  AND status = 'completed' AND chunk_from = :chunk_from AND chunk_to = :chunk_to
  AND coalesce(resource_name, '') = :resource_name
