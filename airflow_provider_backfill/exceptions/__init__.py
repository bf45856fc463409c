"""Everything that this package raises on purpose.

::

    BackfillError
    ├── RefusedError                        nothing was written; the command exits with 2
    │   ├── SettingError                    an option of [chunked_backfill] is unusable
    │   ├── WindowError
    │   │   ├── NaiveBoundError             a time without an offset
    │   │   ├── EmptyWindowError            the end is not after the start
    │   │   ├── BoundFormatError            a bound is neither a time nor a whole number
    │   │   ├── ChunkSizeError              a chunk size is not one, or does not fit the window
    │   │   ├── TooManyChunksError          the plan is longer than max_chunks
    │   │   ├── UnconfirmedPlanError        the plan takes longer than max_estimated_hours
    │   │   ├── MapLengthError              the plan is longer than Airflow maps
    │   │   ├── StrategyError               a strategy lacks what it chooses windows from
    │   │   └── TimezoneError               no such time zone
    │   ├── ChoiceError                     an argument is none of its choices
    │   ├── ChunkFieldError                 a field in an argument of the source is none of a chunk's
    │   ├── CursorFormatError               a cursor format is none, or cannot say the chunks' bounds
    │   ├── SourceError
    │   │   ├── SourceNotFoundError         the reference leads nowhere
    │   │   ├── SourceImportError           the source's module does not import
    │   │   └── SourceArgumentsError        the source does not take the arguments, or lacks one
    │   ├── TargetError
    │   │   ├── DestinationUnsupportedError the destination cannot carry the ledger
    │   │   ├── DialectError                another package's dialect cannot be used
    │   │   └── ConnectionTypeError         the Airflow connection has a type that is not known
    │   ├── PreflightError                  findings about the source and its target
    │   ├── PlanConflictError               the stored plan has other inputs
    │   ├── DuplicateChunksError            the ledger has a chunk twice
    │   ├── OverlapError                    another backfill has done part of the window
    │   ├── RestateError                    rows to be replaced cannot be told from others
    │   ├── PromoteError                    what another dataset has cannot be moved
    │   ├── HandoverError                   a pipeline's bookmark cannot be set to the window's end
    │   └── GateError                       an assertion is none, or cannot be made about these rows
    ├── LedgerError
    │   ├── ClaimLostError                  the attempt's claim ran out or was taken away
    │   ├── ChunkHeldError                  somebody else holds the chunk now
    │   ├── BackfillPausedError             somebody has paused the backfill
    │   ├── BackfillCancelledError          somebody has cancelled it
    │   ├── LedgerBusyError                 the ledger's database stayed locked
    │   ├── LedgerUnreachableError          the ledger's database does not let us in
    │   └── ChunkMissingError               the ledger has no such row
    └── AttemptError                        one attempt failed; another may succeed
        ├── EmptyChunkError                 the source had no row, and on_empty is "fail"
        └── AssertionFailedError            the rows do not pass an assertion

Each class keeps its values as attributes and builds its message from them. A message is one line (a
`PreflightError` with several findings has one line each), names the value, says why, and says what to do.
Those of refusals end with where `docs/refusals.md` explains them, which `chunked-backfill explain` prints.
Passwords inside addresses and connection strings are masked in every message. All survive pickling.
"""

from __future__ import annotations

from airflow_provider_backfill.exceptions.attempts import (
    AssertionFailedError,
    AttemptError,
    BackfillCancelledError,
    BackfillPausedError,
    ChunkHeldError,
    ChunkMissingError,
    ClaimLostError,
    EmptyChunkError,
    LedgerBusyError,
    LedgerError,
    LedgerUnreachableError,
)
from airflow_provider_backfill.exceptions.base import (
    BackfillError,
    RefusedError,
)
from airflow_provider_backfill.exceptions.refusals import (
    ConnectionTypeError,
    DestinationUnsupportedError,
    DialectError,
    DuplicateChunksError,
    Finding,
    GateError,
    HandoverError,
    OverlapError,
    PlanConflictError,
    PreflightError,
    PromoteError,
    RestateError,
    SettingError,
    SourceArgumentsError,
    SourceError,
    SourceImportError,
    SourceNotFoundError,
    TargetError,
)
from airflow_provider_backfill.exceptions.windows import (
    BoundFormatError,
    ChoiceError,
    ChunkFieldError,
    ChunkSizeError,
    CursorFormatError,
    EmptyWindowError,
    MapLengthError,
    NaiveBoundError,
    StrategyError,
    TimezoneError,
    TooManyChunksError,
    UnconfirmedPlanError,
    WindowError,
)

__all__ = [
    "AssertionFailedError",
    "AttemptError",
    "BackfillCancelledError",
    "BackfillError",
    "BackfillPausedError",
    "BoundFormatError",
    "ChoiceError",
    "ChunkFieldError",
    "ChunkHeldError",
    "ChunkMissingError",
    "ChunkSizeError",
    "ClaimLostError",
    "ConnectionTypeError",
    "CursorFormatError",
    "DestinationUnsupportedError",
    "DialectError",
    "DuplicateChunksError",
    "EmptyChunkError",
    "EmptyWindowError",
    "Finding",
    "GateError",
    "HandoverError",
    "LedgerBusyError",
    "LedgerError",
    "LedgerUnreachableError",
    "MapLengthError",
    "NaiveBoundError",
    "OverlapError",
    "PlanConflictError",
    "PreflightError",
    "PromoteError",
    "RefusedError",
    "RestateError",
    "SettingError",
    "SourceArgumentsError",
    "SourceError",
    "SourceImportError",
    "SourceNotFoundError",
    "StrategyError",
    "TargetError",
    "TimezoneError",
    "TooManyChunksError",
    "UnconfirmedPlanError",
    "WindowError",
]
