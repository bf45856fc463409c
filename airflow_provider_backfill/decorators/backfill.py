"""``@task.chunked_backfill``: a function that returns a dlt source becomes a backfill of it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import partial, update_wrapper
from typing import Any, NoReturn

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.version_compat import (
    KNOWN_CONTEXT_KEYS,
    DuplicateTaskIdFound,
    TaskGroup,
    XComArg,
    get_unique_task_id,
)

_NAME = "@task.chunked_backfill"


class BackfillTask:
    """A decorated function: a call of it in a DAG makes its backfill. See `chunked_backfill_task`.

    Args:
        function: The function, which returns a dlt source.
        arguments: What the decorator was given.

    Raises:
        TypeError: The arguments do not fit; the message says which and what to do.
    """

    def __init__(self, *, function: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
        for name in {"source", "source_kwargs"} & set(arguments):
            raise TypeError(
                f"{_NAME} got {name}; the source is what the function returns, "
                "and its arguments are what the function is called with in the DAG"
            )
        self.function = function
        self._arguments = {"task_id": function.__name__, **arguments}
        update_wrapper(self, function)

    def __call__(self, *args: Any, **kwargs: Any) -> XComArg | TaskGroup:
        """Make the backfill; the arguments are for the function and may be templates or other tasks' XComs.

        Returns:
            Of a window its task group, of one chunk what the task will return.
        """
        arguments = {
            "source": self.function,
            "source_kwargs": self._named(args, kwargs),
            **self._arguments,
        }
        if self.function.__doc__ and not any(name.startswith("doc") for name in arguments):
            arguments["doc_md"] = self.function.__doc__
        if arguments.get("chunk") is None:
            return _task(arguments)
        return _group(arguments)

    def override(self, **changes: Any) -> BackfillTask:
        """The same function with other arguments of the decorator."""
        return BackfillTask(function=self.function, arguments={**self._arguments, **changes})

    def expand(self, *_: Any, **__: Any) -> NoReturn:
        """Refused: to the ledger all mapped tasks would be one source, and all but the first be done."""
        raise TypeError(
            f"a function with {_NAME} cannot be mapped; call it once for each source, "
            "with override(task_id=..., source_name=...), or map the operator: "
            "ChunkedBackfillOperator.partial(...).expand_kwargs([{'source_name': ..., 'source_kwargs': ...}])"
        )

    partial = expand_kwargs = expand

    def _named(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, if the function takes them."""
        signature = inspect.signature(self.function)
        bound = signature.bind(*args, **kwargs)
        for name in KNOWN_CONTEXT_KEYS & set(signature.parameters) - set(bound.arguments):
            raise TypeError(
                f"{self.function.__name__} has a parameter {name!r} and gets nothing of Airflow's context; "
                "pass what it needs when it is called, e.g. as a template"
            )
        return {**dict(zip(signature.parameters, args, strict=False)), **kwargs}


def _task(arguments: dict[str, Any]) -> XComArg:
    """One chunk."""
    if "max_active_chunks" in arguments:
        raise TypeError(
            f"{_NAME} got max_active_chunks without chunk, and so has one chunk to run; "
            "pass a size, e.g. chunk='1d', or leave max_active_chunks out"
        )
    if "resources" in arguments:
        # Airflow's operators have an argument of that name.
        arguments["resource_names"] = arguments.pop("resources")
    task_id = get_unique_task_id(arguments.pop("task_id"), arguments.get("dag"), arguments.get("task_group"))
    output: XComArg = ChunkedBackfillOperator(task_id=task_id, **arguments).output
    return output


def _group(arguments: dict[str, Any]) -> TaskGroup:
    """A window."""
    task_id = group_id = arguments.pop("task_id")
    number = 0
    while True:
        try:
            return ChunkedBackfillOperator.expand_window(task_id=group_id, **arguments)
        except DuplicateTaskIdFound:
            # Tasks of one function are numbered so. Airflow's own numbers of groups repeat in a group.
            number += 1
            group_id = f"{task_id}__{number}"


def chunked_backfill_task(python_callable: Callable[..., Any] | None = None, **kwargs: Any) -> Any:
    """Make a backfill of the dlt source that a function returns: ``@task.chunked_backfill``.

    Parsing the DAG does not call the function, so that what it imports inside stays out of the parsing. What
    it is called with in the DAG becomes the source's arguments; they may be templates, have a chunk's fields
    (with ``bounded_by="kwargs"``), or be XComs of other tasks.

    Without ``chunk`` a call makes one task: one chunk, by default the DAG run's data interval. With ``chunk``
    it makes the task group of `ChunkedBackfillOperator.expand_window`.

    Args:
        python_callable: The function; its name is the default of ``task_id``.
        kwargs: ``chunk``, the size of a window's chunks, default None; and whatever
            `ChunkedBackfillOperator.expand_window` takes, but ``source`` and ``source_kwargs``.

    Raises:
        TypeError: The arguments do not fit; the message says which and what to do.

    Example:
        >>> @task.chunked_backfill(conn_id="warehouse", dataset_name="web_raw", chunk="1d")
        ... def web_events():
        ...     from sources.web_events import page_views
        ...
        ...     return page_views()
        >>> web_events()
    """
    if python_callable is None:
        return partial(chunked_backfill_task, **kwargs)
    return BackfillTask(function=python_callable, arguments=kwargs)
