"""A sink that keeps what is measured."""

from __future__ import annotations

from dataclasses import dataclass, field

from airflow_provider_backfill.engine.metrics import PREFIX, Kind, Metric


@dataclass
class Kept:
    """What was measured, in order; names come without their prefix."""

    metrics: list[Metric] = field(default_factory=list)

    def write(self, metric: Metric) -> None:
        self.metrics.append(metric)

    def of(self, name: str) -> list[Metric]:
        return [metric for metric in self.metrics if metric.name == f"{PREFIX}.{name}"]

    def values(self, name: str) -> list[float]:
        return [metric.value for metric in self.of(name)]

    def counts(self) -> dict[str, int]:
        """The sum of each counter."""
        sums: dict[str, int] = {}
        for metric in self.metrics:
            if metric.kind is Kind.COUNTER:
                name = metric.name.removeprefix(f"{PREFIX}.")
                sums[name] = sums.get(name, 0) + int(metric.value)
        return sums


class Broken:
    """A sink that fails each time."""

    def __init__(self) -> None:
        self.asked = 0

    def write(self, metric: Metric) -> None:
        self.asked += 1
        raise OSError("no route to\npostgres://me:s3cret@collector")
