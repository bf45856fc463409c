"""Links on tasks."""

from __future__ import annotations
