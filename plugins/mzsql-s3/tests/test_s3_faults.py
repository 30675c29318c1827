"""What a client does when server and network fail, on real connections through a proxy: no wrong answer, no write lost or half done, no
hang, and an error that says whether it happened."""

from __future__ import annotations

import threading
import time

import pytest
from s3_places import BRIEF, FEW, IMPATIENT, SMALL
from s3_proxy import Answer, after, answer, cut, drip, hang, on, reset, slow, trickle

from mzsql.location import Determinate, Indeterminate, LocationError, waiting

LONG = bytes(range(256)) * 20  # 13 parts of the small settings
PASSING = {
    "500": answer(500, "InternalError"),
    "503": answer(503, "SlowDown"),
    "throttled": answer(429, "TooManyRequests"),
    "no answer from a proxy": answer(502),
    "reset": reset,
    "hang": hang(4),
    "slow, in time": slow(0.2),
}
SELDOM = {"throttled", "no answer from a proxy", "hang"}
"""Of these, run only with the long tests."""


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=pytest.mark.long if name in SELDOM else ()) for name in PASSING],
)
@pytest.mark.parametrize("did", [False, True], ids=["before", "after"])
def test_a_passing_fault_is_not_noticed(faulty, direct, proxy, through_proxy, opened, name, did):
    """Every operation, each of whose first requests fails, before or after the server did it."""
    if name == "hang":
        faulty = opened(url=through_proxy, **SMALL, **BRIEF)
    if name.startswith("slow") and did:
        pytest.skip("slow passes on what it is given")
    fault = after(PASSING[name]) if did else PASSING[name]
    steps = {
        "PutObject": lambda: faulty.set("a/b", b"1"),
        "GetObject": lambda: faulty.get("a/b"),
        "ListObjectsV2": lambda: list(faulty.list_keys_and_metadata("")),
        "DeleteObject": lambda: faulty.delete("a/b"),
        "DeleteObjects": lambda: faulty.delete_many(["a/b", "c"]),
        "UploadPart": lambda: faulty.set("l", LONG),
        "CreateMultipartUpload": lambda: faulty.set("l", LONG),
        "CompleteMultipartUpload": lambda: faulty.set("l", LONG),
        "ListMultipartUploads": lambda: [u for u in faulty.list_unfinished() if u.size],
    }
    results = {}
    for operation, step in steps.items():
        proxy.fault = on(fault, operation)
        before = proxy.counts[operation]
        results[operation] = step()
        assert proxy.counts[operation] > before
    assert results["GetObject"] == b"1"
    assert results["ListObjectsV2"] == [("a/b", 1)]
    assert results["DeleteObject"] == 1
    assert results["ListMultipartUploads"] == []
    assert direct.get("a/b") is None
    assert direct.get("l") == LONG


@pytest.mark.parametrize("length", [0, 1, 399, 700])
def test_a_body_cut_off_is_read_again(faulty, direct, proxy, length):
    direct.set("k", LONG[:900])
    proxy.fault = on(cut(length), "GetObject", times=3)
    assert faulty.get("k") == LONG[:900]
    proxy.fault = on(cut(length // 2), "GetObject", times=2)
    assert faulty.get_range("k", 100, 500) == LONG[100:600]


def test_bodies_cut_off_in_ranges_are_read_again(faulty, direct, proxy):
    direct.set("k", LONG)
    proxy.fault = on(cut(150), "GetObject", times=9)
    assert faulty.get("k") == LONG


def test_a_body_always_cut_off_is_an_error(few, direct, proxy):
    direct.set("k", LONG[:900])
    proxy.fault = on(cut(500), "GetObject", times=None)
    with pytest.raises(Determinate, match="of 900 bytes"):
        few.get("k")


def test_a_body_changed_on_the_way_is_read_again(faulty, direct, proxy):
    direct.set("k", LONG[:900])

    def damage(exchange):
        found = exchange.pass_on()
        body = bytes([found.body[0] ^ 1]) + found.body[1:]
        exchange.send(type(found)(found.status, found.headers, body))

    proxy.fault = on(damage, "GetObject", times=2)
    assert faulty.get("k") == LONG[:900]
    proxy.fault = on(damage, "GetObject", times=None)
    with pytest.raises(Determinate, match="came damaged"):
        faulty.get("k")


def test_a_reader_in_ranges_sees_one_version(faulty, direct, proxy):
    """The object is replaced between the first answer and the ranges."""
    direct.set("k", LONG)
    other = LONG[::-1]

    def replace(exchange):
        found = exchange.pass_on()
        direct.set("k", other)
        exchange.send(found)

    proxy.fault = on(replace, "GetObject")
    assert faulty.get("k") == other

    def remove(exchange):
        found = exchange.pass_on()
        direct.delete("k")
        exchange.send(found)

    proxy.fault = on(remove, "GetObject")
    assert faulty.get("k") is None


def test_an_object_that_is_replaced_all_the_time_is_still_read(
    direct, proxy, through_proxy, opened, s3_of_small_parts
):
    """Each request finds another version; so no ranges fit together, and only one answer can be read."""
    patient = opened(url=through_proxy, **SMALL)
    versions = [LONG[:1500], LONG[1500:3000]]
    direct.set("k", versions[0])
    client, where = s3_of_small_parts.client(), direct.place.below("k")

    def replace(exchange):
        found = exchange.pass_on()
        versions.reverse()
        client.put_object(Bucket=s3_of_small_parts.bucket, Key=where, Body=versions[0])
        exchange.send(found)

    proxy.fault = on(replace, "GetObject", times=None)
    assert patient.get("k") in versions
    assert patient.get_range("k", 100, 1_300) in [found[100:1_400] for found in versions]


@pytest.mark.parametrize(
    "value",
    [pytest.param(b"short", marks=pytest.mark.long), LONG],
    ids=["put", "multipart"],
)
def test_a_write_that_never_gets_through(few, direct, proxy, value):
    """Refused: it surely did not happen. No answer: it may have. Nothing unfinished stays."""
    last = "PutObject" if len(value) < 1000 else "CompleteMultipartUpload"
    direct.set("k", b"old")
    cases = [
        (answer(503, "SlowDown"), Determinate, b"old"),
        (answer(403, "AccessDenied"), Determinate, b"old"),
        (answer(500, "InternalError"), Indeterminate, b"old"),
        (reset, Indeterminate, b"old"),
        (hang(60), Indeterminate, b"old"),
        (after(reset), Indeterminate, None),
    ]
    for fault, kind, there in cases:
        proxy.fault = on(fault, last, times=None)
        with pytest.raises(kind, match="cannot write 'k'") as caught:
            few.set("k", value)
        assert type(caught.value) is kind
        assert proxy.endpoint in str(caught.value).replace("%3A", ":").replace("%2F", "/")
        assert direct.get("k") in ((there,) if there else (b"old", value))
        direct.set("k", b"old")
    assert list(direct.list_unfinished()) == []


def test_a_part_that_fails_leaves_nothing(few, direct, proxy):
    for fault in (answer(403, "AccessDenied"), answer(500, "InternalError")):
        proxy.fault = on(fault, "UploadPart", times=None)
        with pytest.raises(Determinate):
            few.set("k", LONG)
        assert direct.get("k") is None
        assert list(direct.list_unfinished()) == []


def test_an_upload_that_cannot_even_be_given_up_is_found_by_a_sweep(few, direct, proxy, caplog):
    def fail(exchange):
        if exchange.seen.operation in ("UploadPart", "AbortMultipartUpload"):
            answer(403, "AccessDenied")(exchange)
        else:
            exchange.send(exchange.pass_on())

    proxy.fault = on(fail, times=None)
    with pytest.raises(Determinate):
        few.set("k", LONG)
    assert "unfinished upload stays behind" in caplog.text
    [left] = direct.list_unfinished()
    assert left.key == "k"
    direct.abort_unfinished(left)
    assert list(direct.list_unfinished()) == []


def test_a_late_try_undoes_no_later_write(direct, proxy, through_proxy, opened):
    """A try that is held up on the way, and given up for another one, arrives after another writer's."""
    brief = opened(url=through_proxy, **SMALL, **BRIEF)
    direct.set("k", b"old")
    late, written = [], threading.Event()

    def hold(exchange):
        late.append(exchange)
        assert written.wait(60)
        done = exchange.pass_on()
        late.append(done.status)

    # The second request under this key is the one conditional on what is there.
    def second(exchange):
        if exchange.seen.headers.get("If-Match") is None:
            exchange.send(exchange.pass_on())
        else:
            proxy.fault = lambda _: False
            hold(exchange)

    proxy.fault = on(second, "PutObject", times=2)
    brief.set("k", b"first")
    direct.set("k", b"second")
    written.set()
    deadline = time.monotonic() + 60
    while len(late) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    assert late[1] == 412
    assert direct.get("k") == b"second"


def test_a_write_whose_answer_is_lost_is_made_once(faulty, direct, proxy):
    """The second try finds it done; another write of it could undo one that comes in between."""
    for value, operation in ((b"new", "PutObject"), (LONG, "CompleteMultipartUpload")):
        direct.delete("k")
        proxy.fault = on(after(reset), operation)
        before = proxy.counts[operation]
        faulty.set("k", value)
        assert proxy.counts[operation] == before + 2
        assert direct.get("k") == value


def test_a_write_stays_conditional_among_others(faulty, direct, proxy):
    """Others set and delete the key before each of its tries: it goes on until it gets through, never without a condition."""
    tries = []

    def other(exchange):
        tries.append({"If-Match", "If-None-Match"} & set(exchange.seen.headers))
        if len(tries) < 8:
            if len(tries) % 2:
                direct.set("k", b"other")
            else:
                direct.delete("k")
        exchange.send(exchange.pass_on())

    proxy.fault = on(other, "PutObject", times=None)
    faulty.set("k", b"mine")
    assert len(tries) == 8
    assert all(tries)
    assert direct.get("k") == b"mine"


def test_a_server_whose_conditions_never_hold(faulty, direct, proxy):
    """It is written and deleted to without, in the end."""

    def refusing(exchange):
        if {"If-Match", "If-None-Match"} & set(exchange.seen.headers):
            answer(412, "PreconditionFailed")(exchange)
        else:
            exchange.send(exchange.pass_on())

    proxy.fault = on(refusing, times=None)
    faulty.set("k", b"1")
    faulty.set("k", b"2")
    assert direct.get("k") == b"2"
    assert faulty.delete("k") == 1
    assert direct.get("k") is None


def test_without_conditions_where_the_server_lacks_them(faulty, direct, proxy):
    def lacking(exchange):
        if {"If-Match", "If-None-Match"} & set(exchange.seen.headers):
            answer(501, "NotImplemented", "A header you provided implies functionality")(exchange)
        else:
            exchange.send(exchange.pass_on())

    proxy.fault = on(lacking, times=None)
    faulty.set("k", b"1")
    faulty.set("k", b"2")
    assert proxy.counts["PutObject"] == 3  # asked once
    assert direct.get("k") == b"2"
    assert faulty.delete("k") == 1
    assert direct.get("k") is None


def test_a_deletion_names_the_size_of_what_it_removed(faulty, direct, proxy):
    """The object is replaced after its size was asked for."""
    direct.set("k", b"1")

    def replace(exchange):
        direct.set("k", b"longer")
        exchange.send(exchange.pass_on())

    proxy.fault = on(replace, "DeleteObject")
    assert faulty.delete("k") == 6
    assert direct.get("k") is None


def test_some_keys_that_cannot_be_removed(faulty, direct, proxy):
    """A DeleteObjects that is answered 200 has failed all the same for the keys it names."""
    direct.set("a", b"1")

    def refuse(code):
        body = (
            f"<DeleteResult><Error><Key>{faulty.place.below('a')}</Key><Code>{code}</Code>"
            "<Message>m</Message></Error></DeleteResult>"
        )
        return answer_with(200, body.encode())

    proxy.fault = on(refuse("SlowDown"), "DeleteObjects")
    faulty.delete_many(["a", "b"])
    assert direct.get("a") is None
    proxy.fault = on(refuse("AccessDenied"), "DeleteObjects")
    with pytest.raises(Determinate, match="AccessDenied"):
        faulty.delete_many(["a", "b"])


def answer_with(status, body):
    return lambda exchange: exchange.send(Answer(status, {"Content-Type": "text/xml"}, body))


@pytest.mark.parametrize(
    "fault",
    [
        hang(60),
        pytest.param(slow(60), marks=pytest.mark.long),
        pytest.param(trickle(0.3), marks=pytest.mark.long),
    ],
    ids=["hang", "slow", "trickle"],
)
def test_no_operation_outlasts_its_time(impatient, direct, proxy, through_proxy, opened, fault):
    """Two seconds and a read timeout, here with much to spare for a busy machine."""
    direct.set("k", LONG[:900])
    opened(url=through_proxy).set("long", bytes(600_000))
    long = opened(url=through_proxy, **IMPATIENT)
    proxy.fault = on(fault, times=None)
    acts = [
        lambda: impatient.get("k"),
        lambda: impatient.get_range("k", 0, 500),
        lambda: long.get("long"),
    ]
    for act in acts:
        start = time.monotonic()
        with pytest.raises(Determinate, match=r"in time|not done in"):
            act()
        assert time.monotonic() - start < 40


@pytest.mark.long
def test_a_caller_that_waits_less_than_the_url_allows(direct, proxy, through_proxy, opened):
    """The limits of a URL that states none are 45 and 15 seconds; the caller has one, also for what goes over other threads."""
    patient = opened(url=through_proxy, **SMALL)
    direct.set("k", LONG)
    direct.set("l", b"1")

    def first_only(exchange):
        """Answer what begins a long read or write, and nothing after that."""
        begins = exchange.seen.headers.get("Range") is None
        if begins and exchange.seen.operation in ("GetObject", "CreateMultipartUpload"):
            exchange.send(exchange.pass_on())
        else:
            exchange.wait(60)

    for fault, act in (
        (hang(60), lambda: patient.get("l")),
        (hang(60), lambda: patient.set("m", b"1")),
        (hang(60), lambda: list(patient.list_keys_and_metadata(""))),
        (first_only, lambda: patient.get("k")),
        (first_only, lambda: patient.set("n", LONG)),
    ):
        proxy.fault = on(fault, times=None)
        start = time.monotonic()
        with (
            pytest.raises(LocationError, match=r"in time|not done in"),
            waiting(lambda end=start + 1: end - time.monotonic()),
        ):
            act()
        assert time.monotonic() - start < 14


def _fails_in_time(kind, act):
    start = time.monotonic()
    with pytest.raises(kind, match=r"in time|not done in") as caught:
        act()
    assert type(caught.value) is kind
    assert time.monotonic() - start < 40


def test_no_listing_outlasts_its_time(impatient, direct, proxy):
    """Each byte of the answer, which botocore reads, is well in time, and all of them would take minutes."""
    for number in range(12):
        direct.set(f"p/{number}", b"1")
    proxy.fault = on(trickle(0.05), times=None)
    _fails_in_time(Determinate, lambda: list(impatient.list_keys_and_metadata("")))


@pytest.mark.long
def test_no_head_of_an_answer_outlasts_its_time(impatient, direct, proxy):
    """It has no end; and what may have been done is not said to have failed."""
    direct.set("p", b"1")
    proxy.fault = on(drip(0.05), times=None)
    _fails_in_time(Determinate, lambda: impatient.get("p"))
    _fails_in_time(Indeterminate, lambda: impatient.set("k", b"1"))
    _fails_in_time(Indeterminate, lambda: impatient.delete_many(["p"]))


def test_a_long_value_whose_server_falls_silent(impatient, proxy):
    """Giving the upload up does not double the time."""

    def silent(exchange):
        if exchange.seen.operation == "CreateMultipartUpload":
            exchange.send(exchange.pass_on())
        else:
            exchange.wait(60)

    proxy.fault = on(silent, times=None)
    # The client waits half a second for none of its answers: on a busy machine the proxy may read the last one when that is over
    # already, or find the connection closed. Each try gives up its own upload.
    for _ in range(5):
        start = time.monotonic()
        with pytest.raises(Determinate):
            impatient.set("l", LONG)
        assert time.monotonic() - start < 40
        while not proxy.counts["AbortMultipartUpload"] and time.monotonic() - start < 10:
            time.sleep(0.05)
        if proxy.counts["AbortMultipartUpload"]:
            break
    assert proxy.counts["AbortMultipartUpload"] >= 1


def test_a_connection_that_ends_in_the_middle_of_a_continue(through_proxy, direct, proxy, opened):
    """Botocore looks there for a line that never comes."""
    blob = opened(url=through_proxy, **FEW)

    proxy.end_within_continue()
    with pytest.raises(Indeterminate, match="connection broke"):
        blob.set("k", bytes(2 * 1024 * 1024))
    assert direct.get("k") is None


@pytest.mark.long
def test_more_callers_than_requests_at_once(direct, through_proxy, proxy, opened):
    """Eight callers, and a read in thirteen ranges, wait for one of two places."""
    direct.set("k", LONG)
    blob = opened(url=through_proxy, concurrency=2, **SMALL)
    lock = threading.Lock()
    now, most, wrong = [0], [0], []

    def count(exchange):
        with lock:
            now[0] += 1
            most[0] = max(most[0], now[0])
        exchange.wait(0.05)
        found = exchange.pass_on()
        with lock:
            now[0] -= 1
        exchange.send(found)

    def read():
        if blob.get("k") != LONG:
            wrong.append(1)

    proxy.fault = on(count, times=None)
    threads = [threading.Thread(target=read) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert (most[0], wrong) == (2, [])


def test_an_upload_that_is_gone(faulty, direct, proxy):
    """Completed by a try whose answer was lost, which is success, or given up by somebody else, which may be either."""
    gone = answer(404, "NoSuchUpload")

    def forgetful(exchange):
        if exchange.seen.number == 0:
            after(reset)(exchange)
        else:
            gone(exchange)

    proxy.fault = on(forgetful, "CompleteMultipartUpload", times=None)
    faulty.set("k", LONG)
    assert direct.get("k") == LONG
    assert proxy.counts["CompleteMultipartUpload"] == 2
    proxy.fault = on(gone, "CompleteMultipartUpload", times=None)
    with pytest.raises(Indeterminate, match="upload is gone"):
        faulty.set("k", LONG[::-1])
    assert direct.get("k") == LONG
