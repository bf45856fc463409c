-- The statements of TaskVisits, written as those of ledger.sql are.

-- name: create
CREATE TABLE IF NOT EXISTS {tasks} (
    dag_id TEXT NOT NULL,
    dag_run_id TEXT NOT NULL,
    task_id TEXT NOT NULL,
    map_index INTEGER NOT NULL,
    try_number INTEGER NOT NULL,
    started_at TIMESTAMPTZ NOT NULL,
    PRIMARY KEY (dag_id, dag_run_id, task_id, map_index)
)

-- name: last
-- The task's last try, and whether its window has been planned again since that began or ended.
SELECT
    tasks.try_number,
    coalesce((
        SELECT max(maps.planned_at) FROM {maps} AS maps
        WHERE maps.dag_id = :dag_id AND maps.dag_run_id = :dag_run_id
          AND strpos(maps.chunk_ids, :backfill_id) > 0
    ) > greatest(tasks.started_at, (
        SELECT max(mine.completed_at) FROM {ledger} AS mine
        WHERE mine.backfill_id = :backfill_id AND mine.dag_id = :dag_id AND mine.dag_run_id = :dag_run_id
          AND mine.task_id = :task_id AND coalesce(mine.map_index, -1) = :map_index
    )), FALSE)
FROM {tasks} AS tasks
WHERE tasks.dag_id = :dag_id AND tasks.dag_run_id = :dag_run_id
  AND tasks.task_id = :task_id AND tasks.map_index = :map_index

-- name: begin
INSERT INTO {tasks} (dag_id, dag_run_id, task_id, map_index, try_number, started_at)
VALUES (:dag_id, :dag_run_id, :task_id, :map_index, :try_number, {now})
ON CONFLICT (dag_id, dag_run_id, task_id, map_index)
DO UPDATE SET try_number = excluded.try_number, started_at = excluded.started_at
