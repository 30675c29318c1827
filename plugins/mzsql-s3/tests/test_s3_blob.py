"""What is particular to S3: parts, ranges, pages, requests, forks, other writers' objects."""

from __future__ import annotations

import base64
import contextlib
import gc
import hashlib
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from mzsql_s3 import S3Blob
from prometheus_client import REGISTRY
from s3_places import IMPATIENT, SMALL, place
from s3_proxy import answer, cut, no_fault, on

from mzsql.location import (
    Adoptable,
    Blob,
    Determinate,
    LocationError,
    ManyDeletable,
    RangeReadable,
    SparkReadable,
    Unfinished,
    UploadSweepable,
    UsageError,
)


def _bytes(length):
    return (bytes(range(251)) * (length // 251 + 1))[:length]


def _requests(blob, act):
    """What an act asked of the server."""
    before = blob.requests
    act()
    return {
        name: n - before.get(name, 0)
        for name, n in blob.requests.items()
        if n != before.get(name, 0)
    }


def test_every_ability(direct):
    for protocol in (Blob, Adoptable, ManyDeletable, RangeReadable, SparkReadable, UploadSweepable):
        assert isinstance(direct, protocol)


@pytest.mark.parametrize("length", [0, 1, 399, 400, 999, 1000, 1001, 1199, 1200, 1201, 5000])
def test_lengths_around_the_threshold_and_the_parts(direct, length):
    """Up to the threshold one request, beyond it a part for each 400 bytes begun."""
    value = _bytes(length)
    wrote = _requests(direct, lambda: direct.set("k", value))
    parts = -(-length // 400)
    if length <= 1000:
        assert wrote == {"PutObject": 1}
    else:
        assert wrote == {
            "CreateMultipartUpload": 1,
            "UploadPart": parts,
            "CompleteMultipartUpload": 1,
        }
    read = _requests(direct, lambda: direct.get("k"))
    assert read == {"GetObject": 1 if length <= 1000 else parts}
    assert direct.get("k") == value
    assert list(direct.list_keys_and_metadata("")) == [("k", length)]
    assert direct.delete("k") == length
    assert list(direct.list_unfinished()) == []


@pytest.mark.parametrize(
    ("offset", "length"),
    [
        (0, 1),
        (0, 5000),
        (1, 4999),
        (0, 6000),
        (4999, 1),
        (4999, 9),
        (5000, 1),
        (9000, 9),
        (700, 1001),
        (700, 0),
        (9000, 0),
    ],
)
def test_ranges_long_and_short(direct, offset, length):
    value = _bytes(5000)
    direct.set("k", value)
    assert direct.get_range("k", offset, length) == value[offset : offset + length]
    assert direct.get_range("absent", offset, length) is None
    direct.set("empty", b"")
    assert direct.get_range("empty", offset, length) == b""


@pytest.mark.parametrize(("offset", "length"), [(-1, 3), (0, -3)])
def test_no_range(direct, offset, length):
    with pytest.raises(UsageError, match="not a range"):
        direct.get_range("k", offset, length)


def test_parts_and_ranges_are_side_by_side(through_proxy, proxy, opened):
    """Two requests wait for each other, which they could not one after the other."""
    blob = opened(url=through_proxy, **SMALL)
    for operation, act in (
        ("UploadPart", lambda: blob.set("k", _bytes(1600))),
        ("GetObject", lambda: blob.get("k")),
    ):
        together = threading.Barrier(2)

        met = []

        def meet(exchange, together=together, met=met):
            if exchange.seen.operation == "UploadPart" or "If-Match" in exchange.seen.headers:
                met.append(1)
                if len(met) <= 2:
                    together.wait(20)
            exchange.send(exchange.pass_on())

        proxy.fault = on(meet, operation, times=None)
        act()
        assert not together.broken
    assert blob.get("k") == _bytes(1600)


def test_several_callers_with_long_objects(direct):
    def work(number):
        for round_ in range(3):
            value = _bytes(3000 + 100 * number + round_)
            direct.set(f"k/{number}", value)
            assert direct.get(f"k/{number}") == value

    with ThreadPoolExecutor(6) as pool:
        list(pool.map(work, range(6)))
    assert dict(direct.list_keys_and_metadata("k/")) == {
        f"k/{number}": 3002 + 100 * number for number in range(6)
    }


def test_what_operations_cost(direct):
    """The numbers of the README: what is written once costs one request."""
    assert _requests(direct, lambda: direct.set("a", b"1")) == {"PutObject": 1}
    assert _requests(direct, lambda: direct.set("a", b"2")) == {"PutObject": 2, "GetObject": 1}
    assert _requests(direct, lambda: direct.get("a")) == {"GetObject": 1}
    assert _requests(direct, lambda: direct.get("b")) == {"GetObject": 1}
    assert _requests(direct, lambda: direct.get_range("a", 0, 1)) == {"GetObject": 1}
    assert _requests(direct, lambda: direct.delete("a")) == {"GetObject": 1, "DeleteObject": 1}
    assert _requests(direct, lambda: direct.delete("a")) == {"GetObject": 1}
    assert _requests(direct, lambda: list(direct.list_keys_and_metadata(""))) == {
        "ListObjectsV2": 1
    }
    many = [f"k{n}" for n in range(1001)]
    assert _requests(direct, lambda: direct.delete_many(many)) == {"DeleteObjects": 2}
    counted = REGISTRY.get_sample_value("mzsql_s3_requests_total", {"operation": "DeleteObjects"})
    assert counted is not None
    assert counted >= 2


def test_opening_and_idling_ask_nothing(through_proxy, proxy, opened):
    blob = opened(url=through_proxy)
    time.sleep(0.5)
    assert proxy.seen == []
    assert blob.requests == {}
    assert blob.get("k") is None
    time.sleep(0.5)
    assert proxy.counts == {"GetObject": 1}


def test_more_keys_than_a_page(direct, s3_of_small_parts):
    client = s3_of_small_parts.client()  # whose pages have 50

    def put(number):
        client.put_object(
            Bucket=s3_of_small_parts.bucket,
            Key=direct.place.object_key(f"p/{number:04}"),
            Body=b"x" * (number % 3),
        )

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(put, range(130)))
    expected = {f"p/{number:04}": number % 3 for number in range(130)}
    found = list(direct.list_keys_and_metadata("p"))
    assert len(found) == 130
    assert dict(found) == expected
    direct.delete_many(list(expected))
    assert list(direct.list_keys_and_metadata("")) == []


ODD = [
    "a b",
    "a+b",
    "a%20b",
    "ü/é",
    "日本/😀",
    "q?x=1&y#z",
    "~'!*()",
    "tab\tx",
    "back\\slash",
    "a:b@c;$,",
    "x=1/y=ü %2F",
    "*.parquet",
]


def test_odd_keys_everywhere(direct):
    for number, key in enumerate(ODD):
        direct.set(key, b"x" * number)
        assert direct.get(key) == b"x" * number
        assert list(direct.list_keys_and_metadata(key)) == [(key, number)]
    long = "ü +%/" + "k" * 50
    direct.set(long, _bytes(1500))
    assert direct.get(long) == _bytes(1500)
    assert dict(direct.list_keys_and_metadata("")) == {long: 1500} | {
        k: n for n, k in enumerate(ODD)
    }
    direct.make_durable([*ODD, long])
    direct.delete_many([*ODD[::2], long])
    for key in ODD[1::2]:
        assert direct.delete(key) is not None
    assert list(direct.list_keys_and_metadata("")) == []


@pytest.mark.parametrize(
    "key", ["new\nline", "bell\x07", "\ud800", "k" * 1025, "ü" * 512, "\uffff"]
)
def test_keys_s3_cannot_take(direct, key):
    for act in (
        direct.get,
        direct.delete,
        direct.spark_path,
        lambda k: direct.set(k, b""),
        lambda k: direct.delete_many([k]),
    ):
        with pytest.raises(UsageError, match="not a key"):
            act(key)
    assert list(direct.list_keys_and_metadata("")) == []


def test_what_others_keep_beside_and_below(direct, s3_of_small_parts):
    """Directory markers of other tools are no keys, and what only begins like the prefix is not below it."""
    client = s3_of_small_parts.client()
    prefix = direct.place.prefix
    for name in (f"{prefix}/", f"{prefix}/d/", f"{prefix}/d//e", f"{prefix}x", f"{prefix}x/y"):
        client.put_object(Bucket=s3_of_small_parts.bucket, Key=name, Body=b"")
    direct.set("d/f", b"1")
    assert list(direct.list_keys_and_metadata("")) == [("d/f", 1)]
    upload = client.create_multipart_upload(Bucket=s3_of_small_parts.bucket, Key=f"{prefix}x/y")
    assert list(direct.list_unfinished()) == []
    client.abort_multipart_upload(
        Bucket=s3_of_small_parts.bucket, Key=f"{prefix}x/y", UploadId=upload["UploadId"]
    )


def test_uploads_left_behind(direct, s3_of_small_parts):
    """Found with the bytes of their parts and their age, in pages, and given up; twice is no error."""
    client = s3_of_small_parts.client()
    bucket = s3_of_small_parts.bucket
    began = time.time() * 1000
    for number, key in enumerate(["a b", "ü", "c+%20", "d"]):
        where = {"Bucket": bucket, "Key": direct.place.object_key(key)}
        upload = client.create_multipart_upload(**where)["UploadId"]
        for part in range(number):
            client.upload_part(**where, UploadId=upload, PartNumber=part + 1, Body=b"x" * 100)
    found = list(direct.list_unfinished())
    assert {one.key: one.size for one in found} == {"a b": 0, "ü": 100, "c+%20": 200, "d": 300}
    assert all(began - 2000 <= one.started_ms <= time.time() * 1000 + 2000 for one in found)
    for one in found:
        direct.abort_unfinished(one)
        direct.abort_unfinished(one)
    assert list(direct.list_unfinished()) == []
    with pytest.raises(UsageError):
        direct.abort_unfinished(Unfinished("", "x", 0, 0))


def test_more_unfinished_uploads_than_a_page(direct, s3_of_small_parts):
    client = s3_of_small_parts.client()

    def begin(number):
        key = direct.place.object_key(f"u/{number % 30}")  # two of one key, too
        client.create_multipart_upload(Bucket=s3_of_small_parts.bucket, Key=key)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(begin, range(61)))
    found = list(direct.list_unfinished())
    assert len({one.upload for one in found}) == len(found) == 61
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(direct.abort_unfinished, found))
    assert list(direct.list_unfinished()) == []


def test_make_durable_misses_what_is_not_there(direct):
    direct.set("a", b"1")
    direct.set("empty", b"")
    direct.make_durable(["a", "empty"])
    direct.make_durable([])
    with pytest.raises(Determinate, match="there is no object 'b/c'"):
        direct.make_durable(["a", "b/c"])


def test_paths_for_spark(direct, opened, s3):
    assert (
        direct.spark_path("a b/ü.parquet")
        == f"s3a://mzsql-small/{direct.place.prefix}/a b/ü.parquet"
    )
    with_no_prefix = opened(url=s3.url(""))
    assert with_no_prefix.spark_path("a/b") == "s3a://mzsql-test/a/b"


def test_a_closed_handle(direct):
    direct.set("k", b"1")
    direct.close()
    direct.close()
    for act in (
        lambda: direct.get("k"),
        lambda: direct.set("l", _bytes(2000)),
        lambda: direct.delete("k"),
    ):
        with pytest.raises(Determinate, match="closed"):
            act()


def _sockets():
    """The numbers of this process's open sockets."""
    found = set()
    for one in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            link = str(one.readlink())
            if link.startswith("socket:"):
                found.add(link)
    return found


@pytest.mark.skipif(not Path("/proc/self/fd").is_dir(), reason="nothing lists open sockets here")
@pytest.mark.parametrize("fault", [no_fault, cut(300), answer(500, "InternalError")])
def test_a_closed_handle_leaves_no_socket_and_no_thread(direct, through_proxy, proxy, fault):
    """Whatever befell its requests, and whether or not its listing was read to the end."""
    direct.set("k", _bytes(3000))
    gc.collect()
    before, threads = _sockets(), set(threading.enumerate())
    blob = S3Blob(place(through_proxy, **SMALL, **IMPATIENT))
    proxy.fault = on(fault, "GetObject", times=None) if fault is not no_fault else no_fault
    for act in (
        lambda: blob.get("k"),
        lambda: blob.set("l", _bytes(2000)),
        lambda: next(blob.list_keys_and_metadata("")),
    ):
        with contextlib.suppress(LocationError):
            act()
    assert len(_sockets()) > len(before)
    blob.close()
    gc.collect()
    ours = {one for one in threading.enumerate() if one.name.startswith("mzsql-s3")}
    assert not ours - threads
    end = (
        time.monotonic() + 20
    )  # the proxy's ends, which are of this process, go when it sees that ours did
    while _sockets() - before and time.monotonic() < end:
        time.sleep(0.05)
    assert _sockets() <= before


def test_closed_amid_requests(direct, opened):
    """Those under way end well or say that it is closed, also those that wait for parts and ranges not begun."""
    value = _bytes(9000)
    direct.set("k", value)
    blob = opened(url=direct.place.url, **SMALL)
    begun, wrong = threading.Barrier(5), []

    def read():
        assert blob.get("k") == value

    def write():
        blob.set("l", value)

    def work(act):
        begun.wait()
        try:
            while True:
                act()
        except Determinate as failure:
            if "closed" not in str(failure):
                wrong.append(str(failure))

    threads = [threading.Thread(target=work, args=(act,)) for act in (read, write, read, write)]
    for thread in threads:
        thread.start()
    begun.wait()
    time.sleep(0.2)
    blob.close()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    assert wrong == []
    assert direct.get("k") == value
    assert direct.get("l") in (None, value)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_fork_amid_requests(direct):
    """Parent and child go on at once, each by connections and threads of its own, whatever the parent's were doing."""
    value = _bytes(3000)
    direct.set("k", value)
    busy = threading.Event()

    def keep_busy():
        while not busy.is_set():
            assert direct.get("k") == value

    threads = [threading.Thread(target=keep_busy) for _ in range(3)]
    for thread in threads:
        thread.start()
    try:
        for child in range(3):
            pid = os.fork()
            if pid == 0:
                try:
                    direct.set(f"child/{child}", value)
                    os._exit(0 if direct.get("k") == value else 1)
                finally:
                    os._exit(2)
            end = time.monotonic() + 60
            status = None
            while status is None and time.monotonic() < end:
                done, code = os.waitpid(pid, os.WNOHANG)
                status = os.waitstatus_to_exitcode(code) if done else None
                time.sleep(0.02)
            if status is None:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
            assert status == 0
    finally:
        busy.set()
        for thread in threads:
            thread.join()
    assert len(list(direct.list_keys_and_metadata("child/"))) == 3
    assert direct.get("child/2") == value


def test_md5_where_a_server_knows_no_crc32(through_proxy, proxy, opened):
    """``checksums=md5`` sends Content-MD5 and no newer checksum."""
    blob = opened(url=through_proxy, checksums="md5", **SMALL)
    value = _bytes(1300)
    blob.set("k", value)
    blob.set("s", b"short")
    assert blob.get("k") == value
    blob.delete_many(["k"])
    assert dict(blob.list_keys_and_metadata("")) == {"s": 5}
    for seen in proxy.seen:
        names = {name.lower(): value for name, value in seen.headers.items()}
        assert not [name for name in names if "checksum" in name or "crc" in name]
        if seen.operation in ("PutObject", "UploadPart", "DeleteObjects"):
            assert len(base64.b64decode(names["content-md5"])) == 16
    [put] = [seen for seen in proxy.seen if seen.operation == "PutObject"]
    digest = base64.b64encode(hashlib.md5(b"short").digest()).decode()
    assert {k.lower(): v for k, v in put.headers.items()}["content-md5"] == digest


def test_crc32_of_every_body(through_proxy, proxy, opened):
    blob = opened(url=through_proxy, **SMALL)
    blob.set("k", _bytes(1300))
    blob.set("s", b"short")
    blob.delete_many(["k"])
    for seen in proxy.seen:
        names = {name.lower() for name in seen.headers}
        if seen.operation in ("PutObject", "UploadPart", "DeleteObjects"):
            assert "x-amz-checksum-crc32" in names
            assert "x-amz-trailer" not in names


def test_a_server_that_ignores_ranges(direct, through_proxy, proxy, opened):
    direct.set("k", _bytes(900))

    def whole(exchange):
        found = exchange.pass_on(without="range")
        exchange.send(found)

    proxy.fault = on(whole, "GetObject", times=None)
    blob = opened(url=through_proxy, **SMALL)
    assert blob.get_range("k", 100, 50) == _bytes(900)[100:150]
    assert blob.get_range("k", 950, 50) == b""
    direct.set("k", _bytes(2000))
    with pytest.raises(Determinate, match="ignores ranges"):
        blob.get("k")


def test_a_body_of_several_blocks(through_proxy, proxy, opened):
    """Longer than what is sent at once; only a long one first asks whether the server will take it."""
    blob = opened(url=through_proxy)
    value = _bytes(3 * 1024 * 1024 + 17)
    blob.set("long", value)
    blob.set("short", value[: 1024 * 1024])
    assert blob.get("long") == value
    assert blob.get("short") == value[: 1024 * 1024]
    puts = [seen for seen in proxy.seen if seen.operation == "PutObject"]
    assert ["Expect" in seen.headers for seen in puts] == [True, False]
