"""Faults at every step of an attempt, in real processes; ``python -m tests.chaos --help``."""

from __future__ import annotations
