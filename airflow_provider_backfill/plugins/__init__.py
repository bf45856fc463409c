"""The page and the API inside Airflow 3.1 and later."""

from __future__ import annotations
