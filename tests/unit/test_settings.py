from __future__ import annotations

import os
import re
import tempfile
from dataclasses import FrozenInstanceError, fields

import pytest

from airflow_provider_backfill.engine.settings import SECTION, Settings
from airflow_provider_backfill.exceptions import SettingError
from airflow_provider_backfill.get_provider_info import get_provider_info

pytestmark = pytest.mark.unit

NUMBERS = [field.name for field in fields(Settings) if field.type in ("int", "float", "float | None")]


def environment(**options):
    return {f"AIRFLOW__CHUNKED_BACKFILL__{name.upper()}": value for name, value in options.items()}


def test_defaults_are_those_of_the_contract():
    settings = Settings()
    assert (settings.lease_seconds, settings.heartbeat_seconds) == (60, 20)
    assert (settings.max_chunks, settings.warn_chunks) == (10_000, 1_000)
    assert (settings.wait_timeout_seconds, settings.file_lock_timeout_seconds) == (3_600, 600)
    assert settings.work_root == os.path.join(tempfile.gettempdir(), f"chunked-backfill-{os.getuid()}")
    assert Settings.from_environment({}) == settings


def test_airflow_declares_every_option_with_the_same_default():
    options = get_provider_info()["config"][SECTION]["options"]
    assert list(options) == [field.name for field in fields(Settings)]
    assert Settings.read(lambda name: options[name]["default"]) == Settings()
    examples = Settings.read(lambda name: options[name]["example"])
    assert all(getattr(examples, name) != getattr(Settings(), name) for name in options)


def test_the_docstring_names_every_field():
    documented = re.findall(r"^        (\w+): ", Settings.__doc__ or "", re.MULTILINE)
    assert documented[: len(fields(Settings))] == [field.name for field in fields(Settings)]


def test_airflows_variables_are_read():
    settings = Settings.from_environment(
        environment(
            lease_seconds="7.5",
            heartbeat_seconds=" 2 ",
            max_chunks="20000",
            max_estimated_hours="7.5",
            warn_chunks="0020",
            wait_timeout_seconds="1e3",
            file_lock_timeout_seconds="5",
            work_dir=" /var/lib/backfill ",
            trace=" True ",
        )
    )
    assert settings == Settings(
        lease_seconds=7.5,
        heartbeat_seconds=2,
        max_chunks=20_000,
        max_estimated_hours=7.5,
        warn_chunks=20,
        wait_timeout_seconds=1_000,
        file_lock_timeout_seconds=5,
        work_dir="/var/lib/backfill",
        trace=True,
    )
    assert settings.work_root == "/var/lib/backfill"


@pytest.mark.parametrize(
    ("text", "on"), [("true", True), ("F", False), ("1", True), ("0", False), (" ", False)]
)
def test_switches_are_read_as_airflow_reads_its_own(text, on):
    assert Settings.from_environment(environment(trace=text)).trace is on
    with pytest.raises(SettingError, match=r"trace = 'maybe' is neither true nor false; change it in"):
        Settings.from_environment(environment(trace="maybe"))


def test_the_processs_environment_is_read_by_default(monkeypatch):
    monkeypatch.setenv("AIRFLOW__CHUNKED_BACKFILL__MAX_CHUNKS", "12")
    monkeypatch.setenv("CHUNKED_BACKFILL__WARN_CHUNKS", "11")
    assert Settings.from_environment().max_chunks == 12
    assert Settings.from_environment().warn_chunks == 1_000


def test_options_that_are_empty_or_strange_are_not_there():
    assert (
        Settings.from_environment(environment(lease_seconds="", max_chunks="  ", no_such="3")) == Settings()
    )


def test_values_need_not_be_texts():
    assert Settings.read({"max_chunks": 12}.get).max_chunks == 12  # type: ignore[arg-type]


@pytest.mark.parametrize("option", NUMBERS)
@pytest.mark.parametrize("text", ["soon", "1m", "1,5", "0x10", "--1"])
def test_what_is_no_number_is_refused(option, text):
    with pytest.raises(SettingError) as caught:
        Settings.from_environment(environment(**{option: text}))
    kind = "a whole number" if option.endswith("_chunks") else "a number"
    assert str(caught.value) == (
        f"[chunked_backfill] {option} = '{text}' is not {kind}; change it in Airflow's configuration "
        f"or in AIRFLOW__CHUNKED_BACKFILL__{option.upper()} (see docs/refusals.md#settingerror)"
    )


@pytest.mark.parametrize("option", ["max_chunks", "warn_chunks"])
def test_numbers_of_chunks_are_whole(option):
    with pytest.raises(SettingError, match="is not a whole number"):
        Settings.from_environment(environment(**{option: "10.5"}))


@pytest.mark.parametrize("option", NUMBERS)
@pytest.mark.parametrize("value", [0, -1])
def test_numbers_are_greater_than_0(option, value):
    with pytest.raises(SettingError, match=rf"{option} = {value} must be greater than 0") as caught:
        Settings(**{option: value})
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("option", [name for name in NUMBERS if name.endswith("_seconds")])
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "1e999"])
def test_seconds_can_be_counted(option, text):
    with pytest.raises(SettingError, match=option):
        Settings.from_environment(environment(**{option: text}))


def test_a_heartbeat_leaves_room_for_a_late_one():
    assert Settings(lease_seconds=3, heartbeat_seconds=1.5).heartbeat_seconds == 1.5
    with pytest.raises(
        SettingError, match=r"heartbeat_seconds = 1\.6 must be at most half of lease_seconds \(3\)"
    ):
        Settings(lease_seconds=3, heartbeat_seconds=1.6)
    with pytest.raises(SettingError, match="heartbeat_seconds = 20 "):
        Settings(lease_seconds=30)


def test_settings_are_named_and_do_not_change():
    with pytest.raises(TypeError):
        Settings(60)  # type: ignore[call-arg]
    with pytest.raises(FrozenInstanceError):
        Settings().max_chunks = 1  # type: ignore[misc]
