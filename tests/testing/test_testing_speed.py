"""The speed sheet is whole, is data, prints, and leaves nothing behind; what it says of time is nobody's to assert."""

from __future__ import annotations

import io

import msgspec
import pytest
from rich.console import Console

from mzsql.location import UnknownScheme, open_blob, open_consensus
from mzsql.testing import SpeedSheet, measure_speed, speed

_LARGE = 128 << 10


@pytest.mark.parametrize(
    ("url", "operations"),
    [
        ("file:{}/blob", {("blob", "set", _LARGE), ("blob", "get", 1024), ("blob", "delete", 0)}),
        (
            "sqlite:{}/c.db",
            {
                ("consensus", "compare_and_set", 1024),
                ("consensus", "truncate", 0),
                ("oracle", "write_ts", 0),
                ("oracle", "apply_write", 0),
            },
        ),
    ],
)
def test_each_operation_is_measured_beside_the_embedded_backend(
    url, operations, tmp_path, monkeypatch
):
    monkeypatch.setattr(speed, "LARGE", _LARGE)
    monkeypatch.setattr(speed, "LARGE_ENTRY", _LARGE)
    url = url.format(tmp_path)
    sheet = measure_speed(url)
    assert sheet.url == url
    assert operations <= {(row.kind, row.operation, row.size) for row in sheet.rows}
    assert {row.threads for row in sheet.rows} == {1, 8}
    for row in sheet.rows:
        for latency in (row.measured, row.embedded):
            assert latency.count + latency.failed >= row.threads
            assert 0 <= latency.p50 <= latency.p95 <= latency.p99
    assert msgspec.json.decode(msgspec.json.encode(sheet), type=SpeedSheet) == sheet
    shown = io.StringIO()
    Console(file=shown, width=200).print(sheet.table())
    text = shown.getvalue()
    for row in sheet.rows:
        assert f"{row.kind} {row.operation}" in text
    if url.startswith("file:"):
        assert list(open_blob(url).list_keys_and_metadata("")) == []
    else:
        store = open_consensus(url)
        assert all(key.startswith("mzsql-kit-") for key in store.list_keys())


def test_a_scheme_nobody_serves_is_not_measured():
    with pytest.raises(UnknownScheme):
        measure_speed("nobody:x")
