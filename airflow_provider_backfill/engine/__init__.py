"""The engine: windows, plans, the ledger and the attempts. It knows dlt and SQL, and not Airflow."""

from __future__ import annotations
