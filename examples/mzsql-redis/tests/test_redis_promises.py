"""What the kit cannot know of Redis: durability, the two tiers of errors, exact numbers, SCAN."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator

import pytest
from mzsql_redis import mzsql_builtin_relations
from redis_server import DURABLE, RedisServer

from mzsql.location import (
    Determinate,
    Indeterminate,
    InvalidUrl,
    UsageError,
    Versioned,
    Whereabouts,
    open_blob,
    open_consensus,
    open_oracle,
)

SENTINEL = "xyzzyS3NTINEL"


@pytest.fixture
def own() -> Iterator[RedisServer]:
    """A server that the test may hurt."""
    with RedisServer() as running:
        yield running


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (("--appendonly", "no"), "appendonly is 'no', not 'yes'"),
        (("--appendonly", "yes", "--appendfsync", "everysec"), "appendfsync is 'everysec'"),
        ((*DURABLE, "--maxmemory-policy", "allkeys-lru"), "maxmemory-policy is 'allkeys-lru'"),
    ],
)
def test_a_server_that_may_lose_data_is_refused(settings: tuple[str, ...], told: str) -> None:
    with RedisServer(*settings) as careless:
        with pytest.raises(UsageError, match=told) as refused:
            open_blob(careless.url())
        assert "durability=ignored" in str(refused.value)
        open_blob(careless.url(durability="ignored")).close()


def test_what_was_acknowledged_survives_a_crash(own: RedisServer) -> None:
    blob, log = open_blob(own.url()), open_consensus(own.url())
    oracle = open_oracle(own.url(), "t", lambda: 0)
    for n in range(50):
        blob.set(f"k{n}", b"%d" % n)
        assert log.compare_and_set("log", n - 1 if n else None, Versioned(n, b"%d" % n))
        oracle.apply_write(n)
    own.stop(signal.SIGKILL)
    own.start()
    # Handles go on: connections that died are replaced before anything is sent on them.
    assert [blob.get(f"k{n}") for n in range(50)] == [b"%d" % n for n in range(50)]
    assert [one.seqno for one in log.scan("log", 0, 99)] == list(range(50))
    assert oracle.read_ts() == 49


def test_without_a_server_nothing_was_done(own: RedisServer) -> None:
    blob, log = open_blob(own.url()), open_consensus(own.url())
    own.stop()
    with pytest.raises(Determinate, match=r"redis redis://127.*cannot write 'k'"):
        blob.set("k", b"v")
    with pytest.raises(Determinate):
        log.compare_and_set("k", None, Versioned(0, b""))
    with pytest.raises(Determinate):
        open_blob(own.url())


def test_an_answer_that_does_not_come_may_mean_either(own: RedisServer) -> None:
    """The server takes its time: the call ends within its timeout, is not sent twice, and has been done all the same."""
    log = open_consensus(own.url(timeout="0.5"))
    log.compare_and_set("k", None, Versioned(0, b"a"))
    assert own.process is not None
    own.process.send_signal(signal.SIGSTOP)
    began = time.monotonic()
    with pytest.raises(Indeterminate, match="cannot append to 'k'"):
        log.compare_and_set("k", 0, Versioned(1, b"b"))
    assert time.monotonic() - began < 30
    own.process.send_signal(signal.SIGCONT)
    with own.client() as client:
        client.ping()
    assert log.head("k") == Versioned(1, b"b")
    assert not log.compare_and_set("k", 0, Versioned(1, b"c"))


def test_a_connection_lost_while_waiting(own: RedisServer) -> None:
    log = open_consensus(own.url())
    log.compare_and_set("k", None, Versioned(0, b"a"))
    raised: list[Exception] = []

    def wait() -> None:
        try:
            log.wait("k", 0, 60.0)
        except (Determinate, Indeterminate) as failure:
            raised.append(failure)

    waiter = threading.Thread(target=wait)
    waiter.start()
    with own.client() as client:
        while not client.info("clients")["blocked_clients"]:
            time.sleep(0.01)
    own.stop(signal.SIGKILL)
    waiter.join(60)
    assert len(raised) == 1


def test_what_the_server_refuses_was_not_done(own: RedisServer) -> None:
    blob = open_blob(own.url())
    blob.set("k", b"old")
    with own.client() as client:
        client.config_set("maxmemory", "1")
    with pytest.raises(Determinate, match="cannot write 'k'"):
        blob.set("k", b"new")
    assert blob.get("k") == b"old"


def test_timestamps_beyond_what_a_double_holds(server: RedisServer) -> None:
    oracle = open_oracle(server.url("big"), "t", lambda: 0)
    oracle.apply_write(2**53)
    assert oracle.write_ts() == 2**53 + 1
    assert oracle.write_ts() == 2**53 + 2
    oracle.apply_write(2**62 + 1)
    assert (oracle.read_ts(), oracle.write_ts()) == (2**62 + 1, 2**62 + 2)


def test_a_listing_while_the_table_grows_has_each_key_once(server: RedisServer) -> None:
    """Redis moves keys between buckets as its table grows: SCAN then yields some of them again."""
    blob = open_blob(server.url("grow"))
    with server.client() as client:
        client.mset({f"grow:b:here/{n}": b"x" for n in range(3000)})
        listing = blob.list_keys_and_metadata("here/")
        seen = [next(listing)[0]]
        client.mset({f"grow:b:else/{n}": b"x" for n in range(30_000)})
    seen += [key for key, _ in listing]
    assert sorted(seen) == sorted(f"here/{n}" for n in range(3000))


def test_prefixes_do_not_meet(server: RedisServer) -> None:
    """Neither those of environments nor what SCAN would take for a pattern."""
    star, other = open_blob(server.url("p%2A")), open_blob(server.url("px"))
    star.set("a[1]*", b"1")
    star.set("a1", b"2")
    other.set("a[1]*", b"333")
    assert list(star.list_keys_and_metadata("a[")) == [("a[1]*", 1)]
    assert sorted(star.list_keys_and_metadata("")) == [("a1", 1), ("a[1]*", 1)]


def test_what_a_newer_version_wrote_is_refused(server: RedisServer) -> None:
    open_blob(server.url("future")).close()
    with server.client() as client:
        assert client.get("future:format") == b"1"
        client.set("future:format", "2")
    with pytest.raises(UsageError, match="has format b'2'"):
        open_blob(server.url("future"))


@pytest.mark.parametrize(
    "url",
    [
        "redis://host/zero",
        "redis://host/0?prefx=a",
        "redis://host/0?timeout=soon",
        "redis://host/0?timeout=nan",
        "redis://host/0?durability=maybe",
        f"redis://me:{SENTINEL}@host:port/0",
    ],
)
def test_urls_that_cannot_be(url: str) -> None:
    with pytest.raises(InvalidUrl) as refused:
        open_blob(url)
    assert SENTINEL not in str(refused.value)


def test_no_password_is_shown(own: RedisServer) -> None:
    url = own.url().replace("://", f"://:{SENTINEL}@")
    with own.client() as client:
        client.config_set("requirepass", SENTINEL)
    open_blob(url).close()
    (relation,) = mzsql_builtin_relations()
    rows = list(relation.rows(Whereabouts(url, "sqlite:x", url)))
    assert [row[0] for row in rows] == ["blob", "oracle"]
    assert SENTINEL not in repr(rows)
    assert all(row[3] > 0 for row in rows)
    wrong = url.replace(SENTINEL, SENTINEL + "2")
    with pytest.raises(Determinate, match=r"WRONGPASS|invalid") as refused:
        open_blob(wrong)
    assert SENTINEL not in str(refused.value)
