"""What backfills of one source have of one another's resources."""

from __future__ import annotations

import pytest

from airflow_provider_backfill.engine.selections import Reach, Selection

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("theirs", "mine", "reach", "lacks"),
    [
        # All that the source had, both times.
        ((None, "orders"), (None, "orders"), Reach.ALL, ""),
        # Another resource of the module, or one that came later, by name.
        ((None, "orders"), (None, "visits"), Reach.NONE, "visits"),
        ((None, "orders"), ("refunds", "refunds"), Reach.NONE, "refunds"),
        ((None, "orders"), ("orders,refunds", "orders,refunds"), Reach.SOME, "refunds"),
        # The source has got another one since, and goes on.
        ((None, "orders"), (None, "orders,refunds"), Reach.ALL, "refunds"),
        ((None, "orders,refunds"), ("orders", "orders"), Reach.ALL, ""),
        # By name.
        (("orders", "orders"), (None, "orders,refunds"), Reach.SOME, "refunds"),
        (("orders,refunds", None), ("orders", None), Reach.ALL, ""),
        (("orders", None), ("orders,refunds", None), Reach.SOME, "refunds"),
        (("orders", None), (None, None), Reach.SOME, ""),
        # Another tool notes nothing.
        ((None, None), (None, "orders"), Reach.ALL, ""),
        ((None, None), ("orders", "orders"), Reach.ALL, ""),
    ],
)
def test_reach(theirs, mine, reach, lacks):
    other, this = Selection.of(*theirs), Selection.of(*mine)
    assert other.reach(this) is reach
    assert ",".join(other.lacks(this)) == lacks
