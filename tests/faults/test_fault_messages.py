"""What errors carry besides their text, and what a call says that only waited for another one."""

from __future__ import annotations

import threading
import time
from urllib.parse import quote

import pytest
from fault_cable import BlackHole
from fault_ledger import texts_of
from fault_persist import SCHEMA, SETTINGS, rows_of
from fault_place import Place
from prometheus_client import CollectorRegistry
from s3_proxy import Exchange, S3Proxy, no_fault, on
from s3_server import S3Server

from mzsql.location import LocationError, open_blob, open_consensus, open_oracle, shown_url
from mzsql.persist import PersistClient

SENTINEL = "sentinel of the tests"


@pytest.mark.parametrize("opened", ["consensus", "oracle"])
def test_a_refused_connection_leaves_no_password_in_its_error(opened: str) -> None:
    """Nor in the driver's error behind it, whose attributes reporters of errors print."""
    url = f"postgres://u:{quote(SENTINEL)}@127.0.0.1:1/x?timeout=1&connect_timeout=1"
    with pytest.raises(LocationError) as caught:
        open_consensus(url) if opened == "consensus" else open_oracle(url, "t", lambda: 0)
    said = texts_of(caught.value)
    assert shown_url(url) in str(caught.value)
    assert SENTINEL not in said
    assert quote(SENTINEL) not in said


def test_a_refused_request_leaves_no_credential_in_its_error(
    s3: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor in the error behind it of boto's, which has the request with its headers."""
    del s3  # whose credentials are in the environment
    monkeypatch.setenv("AWS_SESSION_TOKEN", SENTINEL.replace(" ", "-"))
    blob = open_blob(
        "s3://bucket?endpoint=http://127.0.0.1:1&region=us-east-1&timeout=1&attempts=2"
    )
    with pytest.raises(LocationError) as caught:
        blob.get("key")
    blob.close()
    said = texts_of(caught.value)
    assert "s3://bucket" in said
    assert SENTINEL.replace(" ", "-") not in said
    assert "Signature=" not in said


def test_an_answer_cut_off_in_a_listing_is_asked_for_again(s3: tuple[S3Server, S3Proxy]) -> None:
    """Its body is read by boto itself, which leaves the failure as it is."""
    server, proxy = s3
    blob = open_blob(server.fresh_url(endpoint=proxy.endpoint, timeout=10, attempts=4))
    blob.set("key", b"value")

    def cut_off(exchange: Exchange) -> None:
        found = exchange.pass_on()
        exchange.send(found, cut=len(found.body) // 2)
        exchange.wait(0.1)  # a reset takes back what was not read yet
        exchange.reset()

    try:
        proxy.fault = on(cut_off, "ListObjectsV2", times=2)
        assert list(blob.list_keys_and_metadata("")) == [("key", 5)]
        proxy.fault = on(cut_off, "ListObjectsV2", times=None)
        with pytest.raises(LocationError, match="the connection broke"):
            list(blob.list_keys_and_metadata(""))
    finally:
        proxy.fault = no_fault
        blob.close()


def test_a_call_that_waited_for_another_one_says_for_which_backends(place: Place) -> None:
    with PersistClient.open(
        blob=place.blob,
        consensus=place.consensus,
        settings=SETTINGS,
        registry=CollectorRegistry(),
    ) as client:
        shard = client.new_shard_id()
        write, read = client.open_shard(shard, SCHEMA, timeout=30)
        read.fetch_upper(timeout=30)  # nothing is on its way any more
        place.wire_pg.fault = BlackHole()

        def append() -> None:
            with pytest.raises(LocationError):
                write.compare_and_append(
                    rows_of([("w", 0)], [0]), expected_upper=0, new_upper=1, timeout=3
                )

        first = threading.Thread(target=append)
        first.start()
        while not place.wire_pg.fault.bites:
            time.sleep(0.01)
        with pytest.raises(LocationError, match="another call of this process") as caught:
            read.fetch_upper(timeout=0.1)
        first.join()
        place.heal()
        place.wire_pg.cut_all()
        assert shown_url(place.consensus) in str(caught.value)
        assert read.fetch_upper(timeout=30) in (0, 1)
