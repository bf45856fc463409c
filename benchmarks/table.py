"""Figures as a table for people and as JSON for machines."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.harness import Figure, Kind, Spread

_SIGNS = {Kind.RATIO: "×", Kind.DIFFERENCE: "more", Kind.VALUE: ""}


def shown(figures: Sequence[Figure]) -> None:
    """Print the table: medians, and in brackets the least and the most."""
    table = Table(box=box.SIMPLE)
    for heading in ("group", "figure", "ours", "theirs", "against", "ratio", "cpu ratio", "budget", ""):
        table.add_column(heading, justify="right" if heading in ("ours", "theirs", "ratio") else "left")
    for figure in figures:
        table.add_row(
            figure.group,
            figure.name,
            _spread(figure.ours, figure.unit),
            _spread(figure.theirs, figure.unit),
            figure.against,
            _spread(figure.ratios, ""),
            f"{figure.cpu_ratios.median:.2f}" if figure.cpu_ratios else "",
            _budget(figure),
            {True: "met", False: "MISSED", None: ""}[figure.met],
        )
    Console(width=190).print(table)


def as_json(figure: Figure) -> Mapping[str, Any]:
    """One figure with everything that was measured."""
    spreads = {
        "ours": figure.ours,
        "theirs": figure.theirs,
        "ratio": figure.ratios,
        "cpu_ratio": figure.cpu_ratios,
    }
    return {
        "group": figure.group,
        "name": figure.name,
        "unit": figure.unit,
        "against": figure.against,
        "budget": {"kind": figure.budget.kind, "most": figure.budget.most},
        "decisive": round(figure.decisive, 4),
        "met": figure.met,
        **{name: _document(found) for name, found in spreads.items() if found},
    }


def _document(found: Spread) -> Mapping[str, Any]:
    return {
        "median": round(found.median, 4),
        "min": round(found.least, 4),
        "max": round(found.most, 4),
        "rounds": [round(value, 4) for value in found.values],
    }


def _spread(found: Spread | None, unit: str) -> str:
    if found is None:
        return ""
    text = _number(found.median) + (f" {unit}" if unit else "")
    if len(found.values) > 1:
        text += f" ({_number(found.least)}–{_number(found.most)})"
    return text


def _number(value: float) -> str:
    return f"{value:.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"


def _budget(figure: Figure) -> str:
    if figure.budget.most is None:
        return ""
    sign = _SIGNS[figure.budget.kind]
    unit = "" if figure.budget.kind is Kind.RATIO else f" {figure.unit}"
    return f"≤ {figure.budget.most:g}{unit} {sign}".rstrip()
