"""The names of the places an attempt is hit at, in the order it comes by them, and of what hits it."""

from __future__ import annotations

AFTER_CLAIM = "after-claim"
MID_EXTRACT = "mid-extract"
IN_HEARTBEAT = "in-heartbeat"
AFTER_NORMALISE = "after-normalise"
MID_LOAD = "mid-load"
IN_MIGRATION = "in-migration"
BEFORE_PUBLISH = "before-publish"
INSIDE_PUBLISH = "inside-publish"
AFTER_COMMIT = "after-commit"

POINTS: dict[str, str] = {
    AFTER_CLAIM: "the claim is committed, nothing else is done",
    MID_EXTRACT: "the source has given half of its rows",
    IN_HEARTBEAT: "the thread that keeps the lease is about to renew it, while the source reads",
    AFTER_NORMALISE: "the load files are written",
    MID_LOAD: "the first of several files is in the stage",
    IN_MIGRATION: "the user's tables are made, the schema is not yet stored (empty dataset)",
    BEFORE_PUBLISH: "the stage is complete",
    INSIDE_PUBLISH: "in the transaction: the ledger row is completed, rows are inserted",
    AFTER_COMMIT: "the transaction is committed, the stage and the directory still stand",
}

SIGKILL = "sigkill"
SIGKILL_GROUP = "sigkill-group"
SIGTERM = "sigterm"
SIGSTOP = "sigstop"
CONNECTION_LOSS = "connection-loss"
LOST_REPLY = "lost-reply"
POSTGRES_RESTART = "postgres-restart"
FULL_DISK = "full-disk"
READ_ONLY = "read-only"

FAULTS: dict[str, str] = {
    SIGKILL: "SIGKILL to the process that runs the attempt",
    SIGKILL_GROUP: "SIGKILL to its process group: two drivers, or a driver and its workers",
    SIGTERM: "SIGTERM to the process",
    SIGSTOP: "SIGSTOP until its lease has run out and a rival has done what it can, then SIGCONT",
    CONNECTION_LOSS: "pg_terminate_backend for every session on the database",
    LOST_REPLY: "the next COMMIT takes effect, and the connection breaks before its answer arrives",
    POSTGRES_RESTART: "an immediate shutdown of the server, as in a crash, and a start",
    FULL_DISK: "the file system of the working directory has no byte left",
    READ_ONLY: "the file system of the working directory is read-only",
}
