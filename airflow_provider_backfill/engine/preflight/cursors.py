"""Finding the incremental cursors that bound a resource, however they were declared."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, get_args

if TYPE_CHECKING:
    from dlt.extract.incremental import Incremental
    from dlt.extract.resource import DltResource


@dataclass(frozen=True, slots=True, kw_only=True)
class Cursor:
    """One cursor that the rows of a resource pass.

    Args:
        owner: The resource that declares it: the resource itself, or a parent of a transformer.
        declared: What stands there: an incremental, or dlt's mark for one that its configuration gives.
        incremental: The same if it can be looked at, else None.
        schedulable: ``allow_external_schedulers`` as dlt will have it.
    """

    owner: str
    declared: Any
    incremental: Incremental[Any] | None
    schedulable: bool | None


def cursor_of(resource: DltResource) -> Any | None:
    """The incremental that bounds a resource: its own, or for a transformer the one of the nearest parent."""
    return next((cursor.declared for cursor in cursors_of(resource)), None)


def cursors_of(resource: DltResource) -> Iterator[Cursor]:
    """All cursors that bound a resource, its own first, then its parents'.

    dlt puts the bounds of a chunk into each of them, so that one that cannot take them empties the chunk,
    also where another would bound it.
    """
    from dlt.extract.incremental import Incremental, IncrementalResourceWrapper

    pipe: Any = resource._pipe
    owner: Any = resource
    while pipe is not None:
        for step in pipe._steps:
            if not isinstance(step, Incremental | IncrementalResourceWrapper):
                continue
            declared = cursor_in(step, pipe, owner)
            if declared is None:
                continue
            incremental = declared if isinstance(declared, Incremental) else None
            schedulable = getattr(step, "_allow_external_schedulers", None)
            if schedulable is None and incremental is not None:
                schedulable = incremental.allow_external_schedulers
            yield Cursor(owner=pipe.name, declared=declared, incremental=incremental, schedulable=schedulable)
        pipe, owner = pipe.parent, getattr(owner, "_parent", None)


def cursor_in(step: Any, pipe: Any, owner: Any) -> Any | None:
    """The incremental that a step of a pipe will bound rows by; None if it will not.

    Args:
        step: An ``Incremental``, or dlt's wrapper for an argument that takes one.
        pipe: dlt's pipe.
        owner: The resource of the pipe; None if it is not known.
    """
    from dlt.extract.incremental import Incremental

    if isinstance(step, Incremental):
        return step
    # What stands as an argument's default is put into the wrapper only when the extraction begins.
    return step.incremental or _argument(pipe.gen, getattr(owner, "_explicit_args", None) or {})


def _argument(function: Callable[..., Any], given: Mapping[str, Any]) -> Any | None:
    """The incremental that a resource's function will be called with; None if there will be none."""
    from dlt.extract.incremental import Incremental, IncrementalResourceWrapper

    # dlt hides the arguments of a function that it has bound.
    signature = inspect.signature(inspect.unwrap(function))
    parameter = IncrementalResourceWrapper.get_incremental_arg(signature)
    if parameter is None:
        return None
    passed, default = given.get(parameter.name), parameter.default
    if isinstance(default, Incremental) and not hasattr(default, "__orig_class__"):
        # As dlt does when the extraction begins: the annotation gives the type that the default lacks.
        default = copy(default)
        if get_args(parameter.annotation):
            default.__orig_class__ = parameter.annotation
    if isinstance(passed, Incremental):
        return default.merge(passed) if isinstance(default, Incremental) else passed
    # Anything else is dlt's mark for a value from its configuration.
    return None if default is inspect.Parameter.empty else default
