from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from airflow_provider_backfill.engine.targets import target_from_url
from airflow_provider_backfill.exceptions import LedgerBusyError
from airflow_provider_backfill.get_provider_info import get_provider_info
from airflow_provider_backfill.triggers import chunk
from airflow_provider_backfill.triggers.chunk import ChunkTrigger
from tests.support.deferral import fired, restored


def trigger(**changes: Any) -> ChunkTrigger:
    arguments: dict[str, Any] = {
        "backfill_id": "d7a7c6e21e0d8ecb",
        "chunk_id": "000002",
        "seconds": 3_600.0,
        "deadline": time.time() + 3_600,
        "holder": "worker-3:4711",
        "conn_id": "warehouse",
        "dataset_name": "web_raw",
    }
    return ChunkTrigger(**{**arguments, **changes})


class Looks:
    """Stands in for the ledger: what each look finds, an error or how long the chunk is held."""

    def __init__(self, *found: float | Exception) -> None:
        self.found = list(found)
        self.count = 0

    async def __call__(self) -> float:
        found = self.found[min(self.count, len(self.found) - 1)]
        self.count += 1
        if isinstance(found, Exception):
            raise found
        return found


def looking(monkeypatch: pytest.MonkeyPatch, *found: float | Exception, **changes: Any) -> ChunkTrigger:
    """A trigger that finds this, and does not wait long for the next look."""
    monkeypatch.setattr(chunk, "POLL_SECONDS", 0.01)
    one = trigger(**changes)
    monkeypatch.setattr(one, "_look", Looks(*found))
    return one


class TestStored:
    def test_nothing_is_lost(self) -> None:
        for one in (trigger(), trigger(conn_id=None, dataset_name=None, holder=None)):
            assert restored(one).serialize() == one.serialize()

    def test_only_names_and_numbers_are_stored(self) -> None:
        # No connection, no destination, no target: whatever is added here must not be a secret.
        _, arguments = trigger().serialize()
        assert set(arguments) == {
            "backfill_id",
            "chunk_id",
            "seconds",
            "deadline",
            "holder",
            "conn_id",
            "dataset_name",
        }
        assert {type(value) for value in arguments.values()} == {str, float}

    def test_a_target_that_was_found_is_not_stored(self) -> None:
        one = trigger()
        one._target = target_from_url("postgresql://bob:hunter2@host/db", "web_raw")
        assert "hunter2" not in json.dumps(one.serialize())

    def test_the_provider_declares_the_module(self) -> None:
        [declared] = get_provider_info()["triggers"]
        assert declared["python-modules"] == [ChunkTrigger.__module__]


class TestWithALook:
    def test_it_fires_once_the_chunk_is_free(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one = looking(monkeypatch, 60, 60, 0)
        payload = {"deadline": one.deadline, "holder": "worker-3:4711", "over": False}
        assert asyncio.run(fired(one)) == payload
        assert one._look.count == 3  # type: ignore[attr-defined]

    def test_it_fires_at_the_deadline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        one = looking(monkeypatch, 60, deadline=time.time() + 0.2)
        assert asyncio.run(fired(one))["over"] is True
        assert time.time() >= one.deadline

    def test_trouble_is_no_event(self, monkeypatch: pytest.MonkeyPatch) -> None:
        busy = LedgerBusyError("web.duckdb", 1)
        one = looking(monkeypatch, busy, OSError("gone"), 60, busy, 0)
        asyncio.run(fired(one))
        assert one._look.count == 5  # type: ignore[attr-defined]

    def test_it_leaves_trouble_that_outlasts_the_lease_to_the_task(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        began = time.monotonic()
        asyncio.run(fired(looking(monkeypatch, OSError("gone"), seconds=0.3)))
        assert time.monotonic() - began >= 0.3

    def test_a_look_that_hangs_counts_as_trouble(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(chunk, "LOOK_SECONDS", 0.05)
        one = looking(monkeypatch, 0, seconds=0.1)
        monkeypatch.setattr(one, "_look", lambda: asyncio.sleep(60))
        asyncio.run(fired(one, within=10))

    def test_trouble_does_not_tell_the_password(self) -> None:
        one = trigger()
        shown = "could not connect to postgresql://bob:hunter2@host/db"
        assert "hunter2" not in one._told(RuntimeError(shown))
        one._target = target_from_url("postgresql://bob:hunter2@host/db", "web_raw")
        assert one._told(RuntimeError("no user hunter2")) == "RuntimeError: no user ***"

    def test_waiting_chunks_do_not_keep_step(self) -> None:
        pauses = {trigger()._pause(3_600) for _ in range(50)}
        assert len(pauses) > 10
        assert 7 < min(pauses) <= max(pauses) <= 10

    def test_the_look_after_the_lease_is_not_late(self) -> None:
        pauses = {trigger()._pause(2) for _ in range(50)}
        assert 2 <= min(pauses) <= max(pauses) <= 2.5


class TestByTheClock:
    def by_the_clock(self, monkeypatch: pytest.MonkeyPatch, **changes: Any) -> float:
        """How long it took; it must not look."""
        one = trigger(conn_id=None, dataset_name=None, **changes)
        looks = Looks(60)
        monkeypatch.setattr(one, "_look", looks)
        began = time.monotonic()
        asyncio.run(fired(one))
        assert looks.count == 0
        return time.monotonic() - began

    def test_it_waits_for_the_end_of_the_lease(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert 0.2 <= self.by_the_clock(monkeypatch, seconds=0.2) < 5

    def test_it_waits_no_longer_than_the_deadline(self, monkeypatch: pytest.MonkeyPatch) -> None:
        assert self.by_the_clock(monkeypatch, deadline=time.time() + 0.2) < 5
        assert self.by_the_clock(monkeypatch, deadline=time.time() - 60) < 5

    def test_one_pause_and_no_more(self) -> None:
        assert 3_600 <= trigger(conn_id=None)._pause(3_600) <= 3_600.5
