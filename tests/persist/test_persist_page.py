"""The page about collections names every setting, every metric and every error."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

import mzsql.persist
from mzsql.location import Determinate, Indeterminate, UsageError
from mzsql.persist import Settings
from mzsql.persist.metrics import ERROR_KINDS, metrics_of
from mzsql.repr.errors import SqlError

PAGE = (Path(__file__).parents[2] / "docs" / "persist.md").read_text()

#: Of the layout of files; their docstrings say what they are for.
_LAYOUT = {
    "row_group_rows",
    "keyed_row_group_rows",
    "keyed_row_group_rows_least",
    "compression",
    "keyed_compression",
}


@pytest.mark.parametrize("name", sorted(set(Settings.__struct_fields__) - _LAYOUT))
def test_settings_are_on_the_page(name):
    assert f"`{name}`" in PAGE


def test_metrics_are_on_the_page():
    registry = CollectorRegistry()
    metrics_of(registry)
    for metric in registry.collect():
        name = metric.name.removeprefix("mzsql_persist_")
        assert name != metric.name
        assert f"`{name}{'_total' if metric.type == 'counter' else ''}`" in PAGE
    for kind in ERROR_KINDS:
        assert f"`{kind}`" in PAGE


def test_errors_are_on_the_page():
    public = vars(mzsql.persist).values()
    errors = [e for e in public if isinstance(e, type) and issubclass(e, SqlError)]
    assert len(errors) > 9
    for error in (*errors, UsageError, Determinate, Indeterminate):
        assert f"`{error.__name__}`" in PAGE
