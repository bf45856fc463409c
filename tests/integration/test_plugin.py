"""What Airflow's plugin manager makes of the plugin, on either line."""

from __future__ import annotations

import sys
from typing import Any

from airflow import plugins_manager

from airflow_provider_backfill.plugins.backfills import BackfillPlugin
from airflow_provider_backfill.version_compat import AIRFLOW_V_3_1_PLUS


def test_it_is_loaded_without_an_error():
    [found] = [each for each in plugins_manager.get_plugin_info() if each["name"] == BackfillPlugin.name]
    assert "airflow-provider-backfill" in str(found["source"])
    manager: Any = plugins_manager
    errors = manager._get_plugins()[1] if hasattr(manager, "_get_plugins") else manager.import_errors
    assert not [error for error in errors if "backfill" in error]
    if AIRFLOW_V_3_1_PLUS:
        assert [view["destination"] for view in found["external_views"]] == ["dag", "dag_run", "nav"]
        assert [app["url_prefix"] for app in found["fastapi_apps"]] == ["/backfills"]
    else:
        # It stays silent: nothing of the page is even imported.
        assert "airflow_provider_backfill.plugins.app" not in sys.modules


def test_every_address_follows_the_path_that_airflow_is_served_under():
    for view in BackfillPlugin.external_views:
        assert not view["href"].startswith(("/", "http"))
    assert len({view["url_route"] for view in BackfillPlugin.external_views}) == 3
