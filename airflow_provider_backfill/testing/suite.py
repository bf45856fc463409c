"""The whole suite, for whoever has a dialect of their own."""

from __future__ import annotations

from airflow_provider_backfill.testing.ledgers import LedgerTests
from airflow_provider_backfill.testing.loads import LoadTests
from airflow_provider_backfill.testing.sessions import SessionTests


class DialectSuite(SessionTests, LedgerTests, LoadTests):
    """What a dialect has to pass. A subclass whose name begins with ``Test`` gives it an empty database::

        class TestAcme(DialectSuite):
            @pytest.fixture
            def target(self) -> Target:
                return target_from_url(empty_database(), "web_raw")

    `SessionTests` are about connections and statements, `LedgerTests` about many workers on one ledger,
    `LoadTests` about whole attempts with dlt.
    """
