"""TaskFlow decorators."""

from __future__ import annotations
