"""Assertions made about a stage: which rows do not pass, and what becomes of them."""

from __future__ import annotations

from airflow_provider_backfill.engine.assertions.check import Gates, Verdict, check_stage

__all__ = ["Gates", "Verdict", "check_stage"]
