"""What every Consensus must do, one plain function for each thing.

Sources: the `Consensus` protocol's text and the suites of persist's own stores: empty keys, wrong expectations, limits, truncation,
keys apart. What one thread does is exact; what several do at once is in `mzsql.testing.concurrent`.
"""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from mzsql.location import (
    MAX_SEQNO,
    Consensus,
    ConsensusWait,
    Determinate,
    LocationError,
    ManyScannable,
    UsageError,
    Versioned,
)
from mzsql.testing.contract import Case, case, run_together, skip
from mzsql.testing.expect import expect, expect_equal, expect_raises
from mzsql.testing.sites import ConsensusSite

CASES: list[Case[ConsensusSite]] = []

PATIENCE = 10.0
"""Seconds after which something that should happen at once counts as missed."""

RACE_SECONDS = 120.0
"""Seconds after which a thread that races for an entry and never wins one counts as hung."""

MANY_KEYS = 900
"""More keys than backends that page through them ask for at once."""

_ODD_KEYS = (
    "s9a3f0c1e-0000-4000-8000-000000000000",
    "a b",
    "ünï/日本",
    "quote'double\"back\\slash",
    "per%cent_under",
    "semi;-- comment",
    "Case",
    "case",
    "k" * 200,
)


def filled(consensus: Consensus, key: str, count: int) -> list[Versioned]:
    """Append ``count`` entries to an empty key.

    Raises:
        AssertionError: an entry is refused.
    """
    entries = [Versioned(i, b"v%d" % i) for i in range(count)]
    for entry in entries:
        expected = entry.seqno - 1 if entry.seqno else None
        if not consensus.compare_and_set(key, expected, entry):
            head = consensus.head(key)
            newest = "there is none" if head is None else f"the newest is {head.seqno}"
            raise AssertionError(f"entry {entry.seqno} of {key!r} was refused: {newest}")
    return entries


@case(CASES)
def empty(site: ConsensusSite) -> None:
    """A key without entries has no head, an empty scan, is not listed, and cannot be truncated."""
    consensus = site.open()
    expect_equal(consensus.head("k"), None, "head of an empty key")
    expect_equal(consensus.scan("k", 0, 10), [], "scan of an empty key")
    expect_equal(consensus.scan("k", 5, 10), [], "scan of an empty key")
    expect_equal(list(consensus.list_keys()), [], "keys of an empty store")
    for seqno in (0, 1):
        expect_raises(UsageError, f"truncate to {seqno}", consensus.truncate, "k", seqno)


@case(CASES)
def compare_and_set(site: ConsensusSite) -> None:
    """Only the expectation that holds gets through, and a lost one changes nothing."""
    consensus = site.open()

    def act(expected: int | None, data: bytes, wanted: bool) -> None:
        new = Versioned(0 if expected is None else expected + 1, data)
        won = consensus.compare_and_set("k", expected, new)
        expect_equal(won, wanted, f"compare_and_set expecting {expected}")

    act(0, b"no", False)
    expect_equal(consensus.head("k"), None, "head after a lost compare_and_set on an empty key")
    expect_equal(list(consensus.list_keys()), [], "keys after that")
    act(None, b"a", True)
    act(None, b"again", False)
    act(None, b"a", False)
    act(0, b"b", True)
    act(0, b"late", False)
    act(0, b"b", False)
    act(5, b"ahead", False)
    expect_equal(consensus.head("k"), Versioned(1, b"b"), "head")
    wanted = [Versioned(0, b"a"), Versioned(1, b"b")]
    found = consensus.scan("k", 0, 10)
    expect_equal(found, wanted, "scan")
    expect(all(type(entry.data) is bytes for entry in found), "entries' data is bytes")
    expect(all(isinstance(entry, Versioned) for entry in found), "entries are Versioned")


@case(CASES)
def refused_steps(site: ConsensusSite) -> None:
    """Sequence numbers are contiguous, start at 0 and are in [0, 2**63 - 1]: anything else is a usage error and changes nothing."""
    consensus = site.open()
    steps: list[tuple[int | None, int]] = [(None, 1), (0, 0), (0, 2), (3, 1), (None, -1), (-5, -4)]
    steps += [(-1, 0), (MAX_SEQNO, MAX_SEQNO + 1), (MAX_SEQNO + 1, MAX_SEQNO + 2), (0, 2**64)]
    for entries in (0, 1):
        if entries:
            filled(consensus, "k", entries)
        head = consensus.head("k")
        for expected, seqno in steps:
            what = f"compare_and_set expecting {expected} with {seqno}"
            new = Versioned(seqno, b"x")
            expect_raises(UsageError, what, consensus.compare_and_set, "k", expected, new)
            expect_equal(consensus.head("k"), head, "head after a refused step")
    last = consensus.compare_and_set("k", MAX_SEQNO - 1, Versioned(MAX_SEQNO, b"x"))
    expect_equal(last, False, "compare_and_set with the greatest sequence number there is")


@case(CASES)
def scan_limits(site: ConsensusSite) -> None:
    """A limit smaller than, equal to and larger than what there is; from before, within and beyond the log."""
    consensus = site.open()
    entries = filled(consensus, "k", 5)
    for start in range(7):
        for limit in (0, 1, 2, 5, 6, 100, MAX_SEQNO):
            found = consensus.scan("k", start, limit)
            expect_equal(found, entries[start:][:limit], f"scan from {start}, at most {limit}")
    expect_equal(consensus.scan("k", MAX_SEQNO, 1), [], "scan from the greatest sequence number")
    expect_raises(UsageError, "scan with a negative limit", consensus.scan, "k", 0, -1)


@case(CASES)
def long_log(site: ConsensusSite) -> None:
    """A long log is scanned in order, in pieces and as a whole, and truncated at once."""
    consensus = site.open()
    count = site.sized(300, 3_000)
    entries = filled(consensus, "k", count)
    expect_equal(consensus.scan("k", 0, count + 1), entries, "scan of everything")
    pieces: list[Versioned] = []
    while piece := consensus.scan("k", len(pieces), 64):
        pieces += piece
    expect_equal(pieces, entries, "scan in pieces")
    expect_equal(consensus.truncate("k", count - 1), count - 1, "entries truncated")
    expect_equal(consensus.scan("k", 0, count), entries[-1:], "scan after truncation")


@case(CASES)
def truncate(site: ConsensusSite) -> None:
    """Truncation counts, repeats, never takes the newest entry, and leaves nothing to start anew from."""
    consensus = site.open()
    entries = filled(consensus, "k", 5)
    expect_equal(consensus.truncate("k", 0), 0, "truncate to 0")
    expect_equal(consensus.truncate("k", 3), 3, "truncate to 3")
    expect_equal(consensus.truncate("k", 3), 0, "truncate to 3 again")
    expect_equal(consensus.truncate("k", 1), 0, "truncate to 1 after that")
    expect_equal(consensus.scan("k", 0, 10), entries[3:], "scan after truncation")
    expect_equal(consensus.scan("k", 4, 10), entries[4:], "scan from 4 after truncation")
    expect_equal(consensus.truncate("k", 4), 1, "truncate to the newest")
    for seqno in (5, 100):
        expect_raises(UsageError, f"truncate to {seqno}", consensus.truncate, "k", seqno)
    expect_equal(consensus.head("k"), entries[4], "head after truncation")
    expect_equal(list(consensus.list_keys()), ["k"], "keys after truncation")
    anew = consensus.compare_and_set("k", None, Versioned(0, b"anew"))
    expect_equal(anew, False, "compare_and_set expecting no entry, after truncation")
    past = consensus.compare_and_set("k", 2, Versioned(3, b"past"))
    expect_equal(past, False, "compare_and_set expecting a truncated entry")
    on = consensus.compare_and_set("k", 4, Versioned(5, b"on"))
    expect_equal(on, True, "compare_and_set expecting the newest entry, after truncation")


@case(CASES)
def keys_are_apart(site: ConsensusSite) -> None:
    """Keys do not touch each other, and each is listed once."""
    consensus = site.open()
    filled(consensus, "a", 3)
    filled(consensus, "b", 1)
    filled(consensus, "ab", 2)
    consensus.truncate("a", 2)
    for key, seqnos in (("a", [2]), ("b", [0]), ("ab", [0, 1])):
        found = [entry.seqno for entry in consensus.scan(key, 0, 10)]
        expect_equal(found, seqnos, f"sequence numbers of {key!r}")
    expect_equal(sorted(consensus.list_keys()), ["a", "ab", "b"], "keys")


@case(CASES)
def odd_keys(site: ConsensusSite) -> None:
    """Keys are any text, upper and lower case apart."""
    consensus = site.open()
    for key in _ODD_KEYS:
        won = consensus.compare_and_set(key, None, Versioned(0, key.encode()))
        expect(won, f"the first entry of {key!r} was refused")
    for key in _ODD_KEYS:
        found = consensus.scan(key, 0, 10)
        expect_equal(found, [Versioned(0, key.encode())], f"scan of {key!r}")
    expect_equal(sorted(consensus.list_keys()), sorted(_ODD_KEYS), "keys")


@case(CASES)
def values(site: ConsensusSite) -> None:
    """Bytes come back as they went: none, every byte there is, 10 KiB, and megabytes."""
    consensus = site.open()
    data = [b"", bytes(range(256)), b"\0" * 10_240, bytes(range(256)) * 4096 * site.sized(1, 8)]
    for seqno, value in enumerate(data):
        entry = Versioned(seqno, value)
        won = consensus.compare_and_set("k", seqno - 1 if seqno else None, entry)
        expect(won, f"an entry of {len(value)} bytes was refused")
        head = consensus.head("k")
        expect(head == entry, f"{len(value)} bytes came back changed as the head")
    found = [entry.data for entry in consensus.scan("k", 0, 10)]
    expect(found == data, "values came back changed from a scan")


@case(CASES)
def two_handles(site: ConsensusSite) -> None:
    """What one handle appended and truncated, another scans at once; its head follows."""
    one, two = site.open(), site.open()
    expect_equal((two.scan("k", 0, 10), two.head("k")), ([], None), "scan and head of nothing")
    entries = filled(one, "k", 3)
    expect_equal(two.scan("k", 0, 10), entries, "scan through the other handle")
    expect_equal(one.scan("k", 3, 10), [], "scan from the end")
    expect_equal(one.head("k"), entries[-1], "head of the handle that appended")
    late = two.compare_and_set("k", 1, Versioned(2, b"late"))
    expect_equal(late, False, "compare_and_set of the other handle expecting an older entry")
    expect(
        two.compare_and_set("k", 2, Versioned(3, b"two")), "the other handle's entry was refused"
    )
    expect_equal(one.scan("k", 3, 10), [Versioned(3, b"two")], "scan of what the other appended")
    expect_equal(two.truncate("k", 2), 2, "truncate through the other handle")
    seqnos = [entry.seqno for entry in one.scan("k", 0, 10)]
    expect_equal(seqnos, [2, 3], "scan after the other's truncation")
    _soon(lambda: one.head("k") == Versioned(3, b"two"), "the head of the other handle's entry")
    expect_equal(list(one.list_keys()), ["k"], "keys")


def _soon(holds: Callable[[], bool], what: str) -> None:
    """A head may lag, but not for good."""
    end = time.monotonic() + PATIENCE
    while not holds():
        expect(time.monotonic() < end, f"{what} was not seen within {PATIENCE:g} s")
        time.sleep(0.01)


@case(CASES)
def reopened(site: ConsensusSite) -> None:
    """What was appended outlives the handle."""
    consensus = site.open()
    entries = filled(consensus, "k", 4)
    consensus.truncate("k", 1)
    consensus.close()
    again = site.open()
    expect_equal(again.scan("k", 0, 10), entries[1:], "scan through a later handle")
    expect_equal(again.head("k"), entries[3], "head through a later handle")
    expect(again.compare_and_set("k", 3, Versioned(4, b"on")), "the next entry was refused")


@case(CASES)
def closing(site: ConsensusSite) -> None:
    """Closing twice is no error; a closed handle still works or refuses with a typed error; other handles do not notice."""
    consensus, other = site.open(), site.open()
    filled(consensus, "k", 1)
    consensus.close()
    consensus.close()
    acts: tuple[Callable[[], object], ...] = (
        lambda: consensus.head("k"),
        lambda: consensus.scan("k", 0, 1),
        lambda: consensus.truncate("k", 0),
    )
    for act in acts:
        try:
            act()
        except (LocationError, UsageError):
            continue
    expect_equal(other.head("k"), Versioned(0, b"v0"), "head through a handle that is open")


@case(CASES)
def contention(site: ConsensusSite) -> None:
    """Of threads on two handles that race for each entry exactly one wins, and the log has no gap."""
    handles = [site.open(), site.open()]
    rounds = site.sized(15, 100)
    won: list[tuple[int, bytes]] = []
    lock = threading.Lock()

    def race(number: int) -> None:
        mine, name = handles[number % 2], b"%d" % number
        end = time.monotonic() + RACE_SECONDS
        for _ in range(rounds):
            while True:
                try:
                    head = mine.head("k")
                    expected = None if head is None else head.seqno
                    seqno = 0 if expected is None else expected + 1
                    done = mine.compare_and_set("k", expected, Versioned(seqno, name))
                except Determinate:  # a busy store refuses, and anyone may try again
                    if time.monotonic() > end:
                        raise
                    continue
                if done:
                    with lock:
                        won.append((seqno, name))
                    break
                expect(
                    time.monotonic() < end,
                    f"a thread won no entry in {RACE_SECONDS:g} s; its head is {head}",
                )

    run_together([functools.partial(race, number) for number in range(4)])
    counts = Counter(seqno for seqno, _ in won)
    twice = {seqno: count for seqno, count in counts.items() if count > 1}
    expect_equal(twice, {}, "entries that several won, and how many")
    expect_equal(sorted(counts), list(range(4 * rounds)), "entries won")
    found = [tuple(entry) for entry in handles[0].scan("k", 0, 1000)]
    expect_equal(found, sorted(won), "the log against what its writers won")


def _many(consensus: Consensus) -> ManyScannable:
    if not isinstance(consensus, ManyScannable):
        skip("cannot scan many keys")
        raise AssertionError  # not reached
    return consensus


def _waiting(consensus: Consensus) -> ConsensusWait:
    if not isinstance(consensus, ConsensusWait):
        skip("cannot wait")
        raise AssertionError  # not reached
    return consensus


@case(CASES)
def scans_of_many_keys(site: ConsensusSite) -> None:
    """Many keys are scanned at once as they are one by one: logs of several lengths, truncated ones, and keys without entries."""
    consensus = site.open()
    many = _many(consensus)
    lengths = {f"k{i}": 1 + i % 4 for i in range(MANY_KEYS)}
    for key, count in lengths.items():
        filled(consensus, key, count)
    consensus.truncate("k3", 2)
    for limit in (0, 1, 2, 3, MAX_SEQNO):
        starts = {key: i % 6 for i, key in enumerate([*lengths, "none", "k"])}
        found = {key: log for key, log in many.scan_many(starts, limit).items() if log}
        alone = {key: consensus.scan(key, start, limit) for key, start in starts.items()}
        wanted = {key: log for key, log in alone.items() if log}
        expect_equal(found, wanted, f"scan of many keys, at most {limit} of each")
    expect_equal(many.scan_many({}, 5), {}, "scan of no keys")
    last = many.scan_many({"k0": MAX_SEQNO, "k3": 0}, 9)
    expect_equal(last.get("k0", []), [], "scan of many from the greatest sequence number")
    expect_equal([entry.seqno for entry in last["k3"]], [2, 3], "scan of many after truncation")
    expect_raises(UsageError, "scan of many with a negative limit", many.scan_many, {"k0": 0}, -1)


@case(CASES)
def wait_times_out(site: ConsensusSite) -> None:
    """A wait for what does not come says so in time; a wait for what is there does not wait."""
    consensus = site.open()
    waiting = _waiting(consensus)
    for after in (-1, 0):
        start = time.monotonic()
        expect_equal(waiting.wait("k", after, 0.05), False, "wait for an entry that does not come")
        expect(time.monotonic() - start < PATIENCE, "a wait of 50 ms did not end")
        filled(consensus, f"other{after}", 2)
        if after == -1:
            filled(consensus, "k", 1)
    start = time.monotonic()
    expect_equal(waiting.wait("k", -1, 60.0), True, "wait for an entry that is there")
    expect(time.monotonic() - start < PATIENCE, "a wait for an entry that is there waited")
    expect_equal(waiting.wait("k", -1, 0.0), True, "wait without time for an entry that is there")
    expect_equal(waiting.wait("k", 0, 0.0), False, "wait without time")


@case(CASES)
def wait_wakes(site: ConsensusSite) -> None:
    """Followers that wait, several on one handle and by another one, see an entry soon after it is appended, by either handle."""
    one, two = site.open(), site.open()
    waiting = [_waiting(one), _waiting(one), _waiting(two)]
    for seqno, writer in enumerate((one, two, one)):
        with ThreadPoolExecutor(3) as pool:
            waits = [pool.submit(_wait_long, each, seqno - 1) for each in waiting]
            time.sleep(0.05)
            expected = seqno - 1 if seqno else None
            expect(writer.compare_and_set("k", expected, Versioned(seqno, b"x")), "entry refused")
            appended = time.monotonic()
            for each in waits:
                late = each.result() - appended
                expect(late < PATIENCE, f"a follower saw the entry after {late:.1f} s")


def _wait_long(waiting: ConsensusWait, after: int) -> float:
    """The moment at which an entry beyond ``after`` was seen; a wait may end early, so it is repeated."""
    end = time.monotonic() + 3 * PATIENCE
    while time.monotonic() < end:
        if waiting.wait("k", after, 3 * PATIENCE):
            return time.monotonic()
    return end
