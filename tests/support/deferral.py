"""What Airflow does with a deferred task, without a triggerer: stores the trigger, runs it, resumes."""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable
from typing import Any

import pytest
from airflow.providers.common.compat.sdk import TaskDeferred

from airflow_provider_backfill.operators.backfill import ChunkedBackfillOperator
from airflow_provider_backfill.triggers.chunk import ChunkTrigger
from tests.support.tasks import FakeTaskInstance, context_of


def deferred(run: Callable[[], Any]) -> TaskDeferred:
    """How the task asked to be deferred; fails the test if it did not."""
    with pytest.raises(TaskDeferred) as caught:
        run()
    return caught.value


def restored(trigger: Any) -> ChunkTrigger:
    """The trigger as a triggerer makes it from what Airflow has stored."""
    path, arguments = trigger.serialize()
    assert path == "airflow_provider_backfill.triggers.chunk.ChunkTrigger"
    return ChunkTrigger(**json.loads(json.dumps(arguments)))


async def fired(trigger: ChunkTrigger, *, within: float = 30) -> dict[str, Any]:
    """The payload of the one event that a trigger fires."""
    async with asyncio.timeout(within):
        [event] = [event async for event in trigger.run()]
    payload: dict[str, Any] = json.loads(json.dumps(event.payload))
    return payload


def resumed(operator: ChunkedBackfillOperator, wait: TaskDeferred, ti: FakeTaskInstance, **event: Any) -> Any:
    """The task after its trigger has fired, without the wait for that; ``event`` changes what it fired."""
    fired_now = {"deadline": wait.trigger.deadline, "holder": wait.trigger.holder, "over": False}
    fired_now |= event
    return getattr(operator, wait.method_name)(context_of(ti), event=fired_now)


def run_to_the_end(operator: ChunkedBackfillOperator, ti: FakeTaskInstance) -> tuple[Any, int]:
    """What a task returns in the end, and how often it was deferred."""
    context = context_of(ti)
    method: Any = operator.execute
    arguments: dict[str, Any] = {}
    for count in itertools.count():
        try:
            return method(context, **arguments), count
        except TaskDeferred as wait:
            method = getattr(operator, wait.method_name)
            # As dag.test() resumes it: what else defer() was given is lost.
            arguments = {"event": asyncio.run(fired(restored(wait.trigger)))}
    raise AssertionError
