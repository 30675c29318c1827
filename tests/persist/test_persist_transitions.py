"""The pure machine: a table of commands with what each changes and answers, and any sequence of them against a plain model."""

from __future__ import annotations

import copy

import msgspec
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec import UNSET

from mzsql.location import UsageError
from mzsql.persist import (
    BlobPart,
    ExpiredHandle,
    Holder,
    InlinePart,
    InvalidBounds,
    NewerVersion,
    ShardFinalized,
    ShardHeld,
    UpperMismatch,
)
from mzsql.persist.commands import (
    AddRollup,
    ApplyMerge,
    Collect,
    CompareAndAppend,
    DowngradeCritical,
    DowngradeSince,
    ExpireReader,
    ExpireWriter,
    Finalize,
    InlineOverflow,
    RegisterCritical,
    RegisterReader,
    ReleaseCritical,
    RenewWriter,
    Retire,
    Sweep,
)
from mzsql.persist.deciding import transition
from mzsql.persist.invariants import check_trace
from mzsql.persist.state import (
    EXPIRED_KEPT,
    CriticalHold,
    Expired,
    LeasedReader,
    ShardState,
    StateDiff,
    TraceBatch,
    Writer,
)
from mzsql.persist.transitions import apply_diff
from mzsql.persist.watch import Sighting
from mzsql.repr.errors import Fenced, InternalError

LEASE = 100
NOW = 1000


def blob(key, time=0, rows=1):
    return BlobPart(key, 10, rows, time, time, None)


def inline(size, time=0):
    return InlinePart(b"x" * size, 1, time, time, 0)


def append(lower, upper, *parts, writer="w", token="t", limit=100, registered=False):
    return CompareAndAppend(writer, token, lower, upper, parts, LEASE, limit, registered=registered)


def shard(**fields):
    """A shard with three batches, two readers, a critical hold and a writer."""
    base = {
        "shard_id": "s",
        "seqno": 7,
        "walltime_ms": NOW,
        "schema": b"",
        "since": 2,
        "upper": 6,
        "next_batch": 3,
        "trace": (
            TraceBatch(0, 0, 2, 0, (blob("a"),)),
            TraceBatch(1, 2, 4, 0, (blob("b", 2), blob("c", 3))),
            TraceBatch(2, 4, 6, 0, (inline(30, 4),)),
        ),
        "readers": {
            "r": LeasedReader(2, 3, NOW, LEASE),
            "r2": LeasedReader(4, 5, NOW, LEASE),
        },
        "critical": {"c": CriticalHold(3, "owner")},
        "writers": {"w": Writer(NOW, LEASE, "last", 6)},
        "rollups": {2: "rollup-2", 4: "rollup-4"},
        "garbage": {3: ("x",), 6: ("y", "z")},
        "applier_version": "0.1.0",
    }
    return ShardState(**{**base, **fields})


UNHELD = shard(readers={}, critical={})
LAPSED = shard(expired={"v": Expired(5, 500), "q": Expired(6, 900, "a listing")})
ENDED = shard(since=None, upper=None, trace=(), readers={}, critical={}, writers={})
UNREAD = shard(since=None, trace=(), readers={}, critical={})
NOTHING = {}
_writer = Writer(NOW + 1, LEASE, "t", 8)
_ended = {"since": None, "upper": None, "garbage": ("a", "b", "c")}
_holders = (
    Holder("critical reader", "c", 3, token="owner"),
    Holder("reader", "r", 2),
    Holder("reader", "r2", 4),
)
_gone = {"removed": (0, 1, 2), "readers": {"r": None, "r2": None}, "writers": {"w": None}}

# state, command, the fields of its diff besides seqno and walltime (None: nothing is committed), its result or error
TABLE = {
    # compare_and_append
    "append adds a batch": (
        shard(),
        append(6, 8, blob("n", 6)),
        {
            "upper": 8,
            "added": (TraceBatch(3, 6, 8, 0, (blob("n", 6),)),),
            "writers": {"w": _writer},
        },
        None,
    ),
    "append of nothing advances upper": (
        shard(),
        append(6, 8),
        {"upper": 8, "writers": {"w": _writer}},
        None,
    ),
    "append to the same upper is a heartbeat, and is committed": (
        shard(),
        append(6, 6),
        {"upper": 6, "writers": {"w": Writer(NOW + 1, LEASE, "t", 6)}},
        None,
    ),
    "append with the writer's last token was committed": (
        shard(),
        append(4, 6, blob("q", 4), token="last"),
        None,
        None,
    ),
    "another writer's token says nothing": (
        shard(),
        append(4, 6, blob("q", 4), writer="v", token="last"),
        UpperMismatch,
        "is \\[6\\]",
    ),
    "append below upper": (shard(), append(5, 8), UpperMismatch, "is \\[6\\]"),
    "append beyond upper": (shard(), append(7, 8), UpperMismatch, "is \\[6\\]"),
    "append that takes upper back": (shard(), append(6, 5), InvalidBounds, "go back"),
    "updates without an interval": (shard(), append(6, 6, blob("n")), InvalidBounds, "need"),
    "an object that is live": (shard(), append(6, 8, blob("a", 6)), UsageError, "before"),
    "an object that is garbage": (shard(), append(6, 8, blob("y", 6)), UsageError, "before"),
    "as much inline as fits": (
        shard(),
        append(6, 8, inline(70, 6)),
        {
            "upper": 8,
            "added": (TraceBatch(3, 6, 8, 0, (inline(70, 6),)),),
            "writers": {"w": _writer},
        },
        None,
    ),
    "more inline than fits": (shard(), append(6, 8, inline(71, 6)), InlineOverflow, None),
    "append to a tombstone": (ENDED, append(6, 8), UpperMismatch, "is \\[\\]"),
    "append that nobody will read is garbage": (
        UNREAD,
        append(6, 8, blob("n", 6), inline(5, 6)),
        {"upper": 8, "garbage": ("n",), "writers": {"w": _writer}},
        None,
    ),
    "append that nobody will read takes what an older version kept along": (
        shard(since=None, readers={}, critical={}),
        append(6, 8, blob("n", 6)),
        {
            "upper": 8,
            "removed": (0, 1, 2),
            "garbage": ("a", "b", "c", "n"),
            "writers": {"w": _writer},
        },
        None,
    ),
    "append of the end while somebody reads": (
        shard(),
        append(6, None),
        {"upper": None, "writers": {"w": Writer(NOW + 1, LEASE, "t", None)}},
        None,
    ),
    "append of the end of what nobody reads": (
        UNREAD,
        append(6, None),
        {"since": None, "upper": None, "writers": {"w": None}},
        None,
    ),
    # readers
    "a reader starts at since and holds the objects from its own change on": (
        shard(),
        RegisterReader("n", LEASE, "why"),
        {"readers": {"n": LeasedReader(2, 8, NOW + 1, LEASE, "why")}},
        LeasedReader(2, 8, NOW + 1, LEASE, "why"),
    ),
    "a reader that is there": (
        shard(),
        RegisterReader("r", LEASE),
        None,
        LeasedReader(2, 3, NOW, LEASE),
    ),
    "a reader of a tombstone": (ENDED, RegisterReader("n", LEASE), ShardFinalized, "finalized"),
    "downgrade to the same since is a heartbeat, and is committed": (
        shard(),
        DowngradeSince("r", 2, 3),
        {"readers": {"r": LeasedReader(2, 3, NOW + 1, LEASE)}},
        None,
    ),
    "downgrade moves since as far as the other holds": (
        shard(),
        DowngradeSince("r", 5, 6),
        {"readers": {"r": LeasedReader(5, 6, NOW + 1, LEASE)}, "since": 3},
        None,
    ),
    "downgrade that goes back changes nothing but the lease": (
        shard(),
        DowngradeSince("r2", 1, 1),
        {"readers": {"r2": LeasedReader(4, 5, NOW + 1, LEASE)}},
        None,
    ),
    "downgrade of nobody": (shard(), DowngradeSince("n", 5, 5), ExpiredHandle, "expired"),
    "downgrade on a tombstone": (ENDED, DowngradeSince("r", 5, 5), ShardFinalized, "finalized"),
    "downgrade to no frontier": (shard(), DowngradeSince("r", -1, 5), InvalidBounds, "frontier"),
    "downgrade beyond int64": (shard(), DowngradeSince("r", 2**63, 5), InvalidBounds, "frontier"),
    "the last hold's end drops every batch": (
        shard(readers={}),
        DowngradeCritical("c", "owner", None),
        {
            "critical": {"c": CriticalHold(None, "owner")},
            "since": None,
            "removed": (0, 1, 2),
            "garbage": ("a", "b", "c"),
        },
        None,
    ),
    "the last hold's end ends a shard that is complete": (
        shard(readers={}, upper=None),
        DowngradeCritical("c", "owner", None),
        {
            "since": None,
            "upper": None,
            "removed": (0, 1, 2),
            "garbage": ("a", "b", "c"),
            "writers": {"w": None},
            "critical": {"c": None},
        },
        None,
    ),
    "expire does not move since": (shard(), ExpireReader("r"), {"readers": {"r": None}}, None),
    "expire of nobody": (shard(), ExpireReader("n"), None, None),
    "expire of a writer": (shard(), ExpireWriter("w"), {"writers": {"w": None}}, None),
    "expire of no writer": (shard(), ExpireWriter("n"), None, None),
    # critical holds
    "a new hold starts at since": (
        shard(),
        RegisterCritical("n", "me"),
        {"critical": {"n": CriticalHold(2, "me")}},
        CriticalHold(2, "me"),
    ),
    "a hold is taken over where it stands": (
        shard(),
        RegisterCritical("c", "me"),
        {"critical": {"c": CriticalHold(3, "me")}},
        CriticalHold(3, "me"),
    ),
    "a hold one has": (shard(), RegisterCritical("c", "owner"), None, CriticalHold(3, "owner")),
    "a hold taken over from whom one expects": (
        shard(),
        RegisterCritical("c", "me", "", "owner"),
        {"critical": {"c": CriticalHold(3, "me")}},
        CriticalHold(3, "me"),
    ),
    "a hold one has, whomever one expected": (
        shard(),
        RegisterCritical("c", "owner", "", "before"),
        None,
        CriticalHold(3, "owner"),
    ),
    "a hold of somebody else": (
        shard(),
        RegisterCritical("c", "me", "", "before"),
        Fenced,
        "belongs to",
    ),
    "a hold of nobody": (shard(), RegisterCritical("n", "me", "", "before"), Fenced, "nobody"),
    "a hold on a tombstone": (ENDED, RegisterCritical("n", "me"), ShardFinalized, "finalized"),
    "a hold moves": (
        shard(),
        DowngradeCritical("c", "owner", 5),
        {"critical": {"c": CriticalHold(5, "owner")}},
        None,
    ),
    "a hold with another's token": (shard(), DowngradeCritical("c", "me", 5), Fenced, "taken over"),
    "a hold that is not there": (
        shard(),
        DowngradeCritical("n", "me", 5),
        ExpiredHandle,
        "released",
    ),
    "a hold is released": (shard(), ReleaseCritical("c", "owner"), {"critical": {"c": None}}, None),
    "a hold is released twice": (shard(), ReleaseCritical("n", "owner"), None, None),
    "a hold is released by another": (shard(), ReleaseCritical("c", "me"), Fenced, "taken over"),
    # maintenance
    "a merge replaces its inputs": (
        shard(),
        ApplyMerge((0, 1), 0, 4, 2, (blob("m", 2),), 1),
        {
            "added": (TraceBatch(3, 0, 4, 2, (blob("m", 2),), consolidated=True, diffs=1),),
            "removed": (0, 1),
            "garbage": ("a", "b", "c"),
        },
        True,
    ),
    "a merge of which nothing is left": (
        shard(),
        ApplyMerge((0, 1), 0, 4, 2, ()),
        {"removed": (0, 1), "garbage": ("a", "b", "c")},
        True,
    ),
    "a merge whose inputs are gone": (
        shard(),
        ApplyMerge((1, 9), 0, 4, 2, (blob("m"),)),
        None,
        False,
    ),
    "a merge that is applied": (shard(), ApplyMerge((8, 9), 0, 2, 2, (blob("a"),)), None, True),
    "a merge that is garbage by now": (
        shard(),
        ApplyMerge((8,), 0, 2, 2, (blob("x"),)),
        None,
        True,
    ),
    "a rollup": (shard(), AddRollup(7, "k"), {"rollups": {7: "k"}}, True),
    "a rollup that is there": (shard(), AddRollup(4, "rollup-4"), None, True),
    "a rollup that lost the race": (shard(), AddRollup(4, "k"), None, False),
    "a rollup of an old state": (shard(), AddRollup(3, "k"), None, False),
    "a rollup of a tombstone": (ENDED, AddRollup(7, "k"), None, False),
    "collected": (
        shard(),
        Collect((3, 5), (2, 4)),
        {"collected": (3,), "rollups": {2: None}},
        None,
    ),
    "collected twice": (shard(), Collect((5,), (3,)), None, None),
    "collected from a tombstone": (
        ENDED,
        Collect((3, 6), (2, 4)),
        {"collected": (3, 6), "rollups": {2: None, 4: None}},
        None,
    ),
    "finalize what nobody holds": (
        UNHELD,
        Finalize(),
        {"removed": (0, 1, 2), "writers": {"w": None}, **_ended},
        None,
    ),
    "finalize what a critical reader holds": (
        shard(readers={}, critical={"c": CriticalHold(3, "owner", "an export")}),
        Finalize(),
        ShardHeld,
        r"critical reader c \(since \[3\], an export\)",
    ),
    "finalize what readers hold": (
        shard(critical={}),
        Finalize(("r",)),
        ShardHeld,
        r"reader r2 \(since \[4\]\)",
    ),
    "finalize with one's own readers": (
        shard(critical={}),
        Finalize(("r", "r2")),
        {**_gone, **_ended},
        None,
    ),
    "finalize what readers have given up": (
        shard(critical={}, readers={"r": LeasedReader(None, 3, NOW, LEASE)}),
        Finalize(),
        {**_gone, "readers": {"r": None}, **_ended},
        None,
    ),
    "finalize twice": (ENDED, Finalize(), None, None),
    "retire what nobody holds": (
        UNHELD,
        Retire(),
        {"removed": (0, 1, 2), "writers": {"w": None}, **_ended},
        (),
    ),
    "retire what is held": (shard(), Retire(), {"ending": True}, _holders),
    "retire twice": (shard(ending=True), Retire(), None, _holders),
    "retire a tombstone": (ENDED, Retire(), None, ()),
    "an ending shard ends with its last reader": (
        shard(ending=True, critical={}, readers={"r": LeasedReader(2, 3, NOW, LEASE)}),
        ExpireReader("r"),
        {**_gone, "readers": {"r": None}, **_ended, "ending": False},
        None,
    ),
    "an ending shard ends with its last hold": (
        shard(ending=True, readers={}),
        ReleaseCritical("c", "owner"),
        {**_gone, "readers": {}, "critical": {"c": None}, **_ended, "ending": False},
        None,
    ),
    "an ending shard ends when the last reader gives up": (
        shard(ending=True, critical={}, readers={"r": LeasedReader(2, 3, NOW, LEASE)}),
        DowngradeSince("r", None, 3),
        {**_gone, "readers": {"r": None}, **_ended, "ending": False},
        None,
    ),
    "an ending shard waits for the others": (
        shard(ending=True),
        ExpireReader("r"),
        {"readers": {"r": None}},
        None,
    ),
    "an ending shard takes no readers": (
        shard(ending=True),
        RegisterReader("n", LEASE),
        ShardFinalized,
        "is to end",
    ),
    "an ending shard takes no holds": (
        shard(ending=True),
        RegisterCritical("n", "t"),
        ShardFinalized,
        "is to end",
    ),
    "a hold of an ending shard changes hands": (
        shard(ending=True),
        RegisterCritical("c", "t"),
        {"critical": {"c": CriticalHold(3, "t")}},
        CriticalHold(3, "t"),
    ),
    "sweep of nothing": (shard(), Sweep(), None, None),
    "sweep of an ending shard that nobody holds": (
        shard(ending=True, readers={}, critical={}),
        Sweep(),
        {**_gone, "readers": {}, **_ended, "ending": False},
        None,
    ),
    "a reader's renewal renews what it is told to": (
        shard(),
        DowngradeSince("r", 2, 3, ("r2", "w", "nobody")),
        {
            "readers": {
                "r": LeasedReader(2, 3, NOW + 1, LEASE),
                "r2": LeasedReader(4, 5, NOW + 1, LEASE),
            },
            "writers": {"w": Writer(NOW + 1, LEASE, "last", 6)},
        },
        None,
    ),
    "a writer's renewal keeps its token": (
        shard(),
        RenewWriter("w", ("r",)),
        {
            "readers": {"r": LeasedReader(2, 3, NOW + 1, LEASE)},
            "writers": {"w": Writer(NOW + 1, LEASE, "last", 6)},
        },
        None,
    ),
    "a writer that never appended has nothing to renew": (shard(), RenewWriter("v"), None, None),
    "an expired writer's renewal": (
        LAPSED,
        RenewWriter("v"),
        ExpiredHandle,
        "no renewal of it for 0.5 s",
    ),
    "an expired writer's append": (
        LAPSED,
        append(6, 8, writer="v"),
        ExpiredHandle,
        "no renewal of it for 0.5 s",
    ),
    "an append of a writer expired and forgotten": (
        shard(),
        append(6, 8, writer="v", registered=True),
        ExpiredHandle,
        "the writer v has expired",
    ),
    "an expired reader's downgrade": (
        LAPSED,
        DowngradeSince("q", 3, 3),
        ExpiredHandle,
        "no renewal of it for 0.9 s",
    ),
    "an expired reader is never registered again": (
        LAPSED,
        RegisterReader("q", LEASE),
        ExpiredHandle,
        "the reader q has expired",
    ),
}


@pytest.mark.parametrize(("state", "command", "expected", "answer"), TABLE.values(), ids=TABLE)
def test_commands(state, command, expected, answer):
    before = copy.deepcopy(state)
    if isinstance(expected, type):
        with pytest.raises(expected, match=answer):
            transition(state, command, NOW)
        assert state == before
        return
    step = transition(state, command, NOW)
    assert step.result == answer
    if expected is None:
        assert step.diff is None
    else:
        diff = step.diff
        assert diff == StateDiff(seqno=8, walltime_ms=NOW + 1, **expected)
        new = apply_diff(state, diff)
        assert (new.seqno, new.walltime_ms) == (8, NOW + 1)
        check_trace(new)
    assert state == before


def seen(unseen_ms, *ids, heartbeat=NOW):
    return {i: Sighting(heartbeat, unseen_ms) for i in ids}


def test_leases_run_out_as_the_process_has_seen_and_leave_since_alone():
    state = shard(critical={}, readers={"r": LeasedReader(2, 3, NOW, LEASE, "a listing")})
    late = seen(LEASE + 1, "r", "w")
    step = transition(state, RegisterReader("n", LEASE), NOW + 1, sightings=late)
    assert step.diff.readers == {"r": None, "n": LeasedReader(2, 8, NOW + 1, LEASE)}
    assert step.diff.writers == {"w": None}
    assert step.diff.expired == {
        "r": Expired(8, LEASE + 1, "a listing"),
        "w": Expired(8, LEASE + 1),
    }
    new = apply_diff(state, step.diff)
    assert (new.since, new.seqno_since) == (2, 8)
    with pytest.raises(ExpiredHandle, match=r"no renewal of it for 0.101 s") as caught:
        transition(new, DowngradeSince("r", 5, 5), NOW)
    assert caught.value.unseen_ms == LEASE + 1
    with pytest.raises(ExpiredHandle):
        transition(new, RegisterReader("r", LEASE), NOW)
    with pytest.raises(ExpiredHandle):
        transition(new, append(6, 8), NOW)
    # Whose call it is lives, whatever was seen of it.
    assert transition(state, DowngradeSince("r", 5, 5), NOW, sightings=late).diff.since == 5
    assert transition(state, append(6, 8), NOW, sightings=late).diff.writers == {"w": _writer}


@pytest.mark.parametrize("clock", [0, NOW - 500, NOW + LEASE * 10**6, 2**62])
def test_no_wall_clock_expires_anybody(clock):
    for command in (append(6, 8), DowngradeSince("r", 2, 3), RegisterReader("n", LEASE), Sweep()):
        step = transition(shard(), command, clock, sightings=seen(LEASE, "r", "r2", "w"))
        if step.diff is not None:
            assert None not in [*step.diff.readers.values(), *step.diff.writers.values()]
            # The shard's clock, which is for people, never goes back.
            assert step.diff.walltime_ms == max(clock, NOW + 1)


def test_a_renewal_that_was_not_seen_keeps_a_lease():
    renewed = seen(LEASE * 9, "r", "r2", "w", heartbeat=NOW - 1)
    assert transition(shard(), Sweep(), NOW, sightings=renewed).diff is None


def test_of_what_expired_a_bounded_number_is_remembered():
    known = {f"w{n}": Expired(n, 1) for n in range(EXPIRED_KEPT)}
    state = shard(seqno=EXPIRED_KEPT, expired=known, rollups={})
    assert not state.may_have_expired("x")
    step = transition(state, Sweep(), NOW, sightings=seen(LEASE + 1, "r", "w"))
    new = apply_diff(state, step.diff)
    assert len(new.expired) == EXPIRED_KEPT
    assert [f"w{n}" in new.expired for n in range(3)] == [False, False, True]
    # Of those it forgot it knows until when they may have expired.
    assert new.forgotten == 1
    assert [new.may_have_expired("x", after) for after in (0, 1)] == [True, False]
    assert [new.may_have_expired("w2", after) for after in (1, 2)] == [True, False]


def test_a_change_remembers_the_newest_version():
    assert transition(shard(), append(6, 8), NOW, "0.1.0").diff.applier_version is UNSET
    assert transition(shard(), append(6, 8), NOW, "0.1.1").diff.applier_version == "0.1.1"
    assert transition(shard(), append(6, 8), NOW, "2.0.0").diff.applier_version == "2.0.0"
    newest = shard(applier_version="0.2.0")
    for _, command, _, _ in TABLE.values():
        with pytest.raises(NewerVersion):
            transition(newest, command, NOW, "0.1.5")
    # Of compatible ones the newer stays.
    patched = shard(applier_version="0.1.9")
    assert transition(patched, append(6, 8), NOW, "0.1.0").diff.applier_version is UNSET


@pytest.mark.parametrize(
    ("fields", "rule_broken"),
    [
        ({"seqno": 9}, "follow each other"),
        ({"walltime_ms": NOW}, "clock only advances"),
        ({"since": 1}, "since never regresses"),
        ({"upper": 5}, "upper never regresses"),
        ({"removed": (7,)}, "what is removed was there"),
        ({"added": (TraceBatch(2, 6, 7, 0, ()),), "upper": 7}, "named anew"),
        ({"added": (TraceBatch(3, 5, 7, 0, ()),), "upper": 7}, "do not overlap"),
        ({"added": (TraceBatch(3, 6, 7, 0, ()),)}, "beyond upper"),
        ({"added": (TraceBatch(3, 6, 6, 0, ()),)}, "covers some time"),
        ({"added": (TraceBatch(3, 6, 7, 3, ()),), "upper": 7}, "beyond since"),
        ({"rollups": {4: None}}, "newest rollup stays"),
        ({"rollups": {8: "k"}}, "newest rollup stays"),
    ],
)
def test_changes_that_break_a_rule_are_refused(fields, rule_broken):
    diff = msgspec.structs.replace(StateDiff(seqno=8, walltime_ms=NOW + 1), **fields)
    with pytest.raises(InternalError, match=rule_broken):
        apply_diff(shard(), diff)
    with pytest.raises(InternalError, match="tombstone"):
        apply_diff(ENDED, StateDiff(seqno=8, walltime_ms=NOW + 1, writers={"w": _writer}))


class PureMachine(RuleBasedStateMachine):
    """Any commands, some repeated as after a lost answer; the model is what a person would keep on paper."""

    @initialize()
    def start(self):
        self.now = NOW
        self.state = ShardState(shard_id="s", seqno=0, walltime_ms=self.now, schema=b"")
        self.holds = {}  # who -> (since, when it runs out or None)
        self.hold_seqnos = {}
        self.beats = {}  # who -> (heartbeat, when it was made), by a clock of its own
        self.elapsed = 0
        self.dead = set()
        self.history = {}  # object -> time, of all that was appended
        self.since, self.upper = 0, 0
        self.objects = {}  # object -> seqno at which it left the state, or None
        self.log = []
        self.first = self.state
        self.counter = 0
        self.last = None

    def do(self, command):
        seen = {i: Sighting(beat, self.elapsed - at) for i, (beat, at) in self.beats.items()}
        step = transition(self.state, command, self.now, sightings=seen)
        assert transition(self.state, command, self.now, sightings=seen) == step
        if step.diff is not None:
            self.run_out(getattr(command, "reader_id", None))
            self.state = apply_diff(self.state, step.diff)
            self.log.append(step.diff)
            leased = {**self.state.readers, **self.state.writers}
            self.beats = {
                i: self.beats[i]
                if i in self.beats and self.beats[i][0] == one.heartbeat_ms
                else (one.heartbeat_ms, self.elapsed)
                for i, one in leased.items()
            }
        self.last = command
        return step.result

    def run_out(self, own):
        for who, (_, end) in list(self.holds.items()):
            if end is not None and end < self.elapsed and who != own:
                del self.holds[who]
                self.hold_seqnos.pop(who, None)
                self.dead.add(who)

    def hold(self, who, since, *, leased):
        end = self.elapsed + LEASE if leased else None
        self.holds[who] = (since, end)

    def moved(self):
        sinces = [since for since, _ in self.holds.values()]
        least = min((s for s in sinces if s is not None), default=None)
        if self.since is None or (sinces and least is None):
            self.since = None
        elif sinces:
            self.since = max(self.since, least)
        if self.since is None:
            self.leave(list(self.live()))
        if self.since is None and self.upper is None:
            self.holds = {}
            self.hold_seqnos = {}

    def live(self):
        return [key for key, left in self.objects.items() if left is None]

    def leave(self, keys):
        for key in keys:
            self.objects[key] = self.state.seqno

    @rule(ms=st.integers(0, 40), wall=st.sampled_from((0, 1, -1, 3600, -3600)))
    def time_passes(self, ms, wall):
        self.elapsed += ms
        self.now = max(0, self.now + ms + wall * 1000)

    @rule(
        writer=st.sampled_from("vw"),
        span=st.integers(0, 3),
        count=st.integers(0, 2),
        again=st.booleans(),
    )
    def append(self, writer, span, count, again):
        if self.upper is None:
            with pytest.raises(UpperMismatch):
                self.do(append(0, 5))
            return
        count = count if span else 0
        keys = [f"o{self.counter + i}" for i in range(count)]
        self.counter += count + 1
        command = append(
            self.upper,
            self.upper + span,
            *(blob(key, self.upper) for key in keys),
            writer=writer,
            token=f"t{self.counter}",
        )
        self.do(command)
        self.history.update(dict.fromkeys(keys, self.upper))
        self.objects.update(dict.fromkeys(keys))
        if self.since is None:
            self.leave(keys)
        self.upper += span
        if again:
            seqno = self.state.seqno
            self.do(command)
            assert self.state.seqno == seqno

    @rule(who=st.sampled_from("abc"))
    def register(self, who):
        if self.since is None and self.upper is None:
            with pytest.raises(ShardFinalized):
                self.do(RegisterReader(who, LEASE))
            return
        if who in self.dead:
            with pytest.raises(ExpiredHandle):
                self.do(RegisterReader(who, LEASE))
            return
        live = who in self.state.readers
        self.do(RegisterReader(who, LEASE))
        if not live:
            self.hold(who, self.since, leased=True)
            self.hold_seqnos[who] = self.state.seqno

    @rule(
        who=st.sampled_from("abc"),
        since=st.one_of(st.integers(0, 30), st.none()),
        lag=st.integers(0, 3),
    )
    def downgrade(self, who, since, lag):
        if self.since is None and self.upper is None:
            return
        held = max(0, self.state.seqno - lag)
        if who not in self.holds:
            with pytest.raises(ExpiredHandle):
                self.do(DowngradeSince(who, since, held))
            return
        self.do(DowngradeSince(who, since, held))
        old = self.holds.get(who, (0, 0))[0]
        later = None if since is None or old is None else max(old, since)
        self.hold(who, later, leased=True)
        self.hold_seqnos[who] = max(self.hold_seqnos[who], held)
        self.moved()

    @rule(who=st.sampled_from("abc"))
    def expire(self, who):
        self.do(ExpireReader(who))
        self.holds.pop(who, None)
        self.hold_seqnos.pop(who, None)

    @rule(token=st.sampled_from("xy"), since=st.integers(0, 30))
    def critical(self, token, since):
        if self.since is None and self.upper is None:
            return
        result = self.do(RegisterCritical("k", token))
        if "k" not in self.holds:
            self.hold("k", self.since, leased=False)
        assert result.since == self.holds["k"][0]
        other = "y" if token == "x" else "x"
        with pytest.raises(Fenced):
            self.do(DowngradeCritical("k", other, since))
        self.do(DowngradeCritical("k", token, since))
        old = self.holds["k"][0]
        self.hold("k", None if old is None else max(old, since), leased=False)
        self.moved()

    @rule(token=st.sampled_from("xy"))
    def release(self, token):
        hold = self.state.critical.get("k")
        if hold is not None and hold.token != token:
            with pytest.raises(Fenced):
                self.do(ReleaseCritical("k", token))
            return
        self.do(ReleaseCritical("k", token))
        self.holds.pop("k", None)

    @rule(data=st.data())
    def merge(self, data):
        trace = self.state.trace
        if not trace or self.since is None:
            return
        first = data.draw(st.integers(0, len(trace) - 1))
        last = data.draw(st.integers(first, len(trace) - 1))
        run = trace[first : last + 1]
        key = f"o{self.counter}"
        self.counter += 1
        keys = [part.key for batch in run for part in batch.parts]
        command = ApplyMerge(
            tuple(batch.id for batch in run), run[0].lower, run[-1].upper, self.since, (blob(key),)
        )
        assert self.do(command) is True
        self.leave(keys)
        self.objects[key] = None
        seqno = self.state.seqno
        assert self.do(command) is True
        assert self.state.seqno == seqno

    @rule(behind=st.integers(0, 2))
    def roll_up(self, behind):
        seqno = self.state.seqno - behind
        if seqno < 0:
            return
        newest = max(self.state.rollups, default=0)
        finalized = self.since is None and self.upper is None
        added = self.do(AddRollup(seqno, f"rollup-{seqno}"))
        assert (
            added is (not finalized and seqno > newest)
            or f"rollup-{seqno}" in self.state.rollups.values()
        )

    @rule()
    def collect(self):
        hold = self.state.seqno_since
        dead = tuple(seqno for seqno in self.state.garbage if seqno <= hold)
        for key, left in list(self.objects.items()):
            if left in dead:
                del self.objects[key]
        self.do(Collect(dead, tuple(self.state.rollups)))

    @rule()
    def close(self):
        if self.upper is not None and self.counter % 7 == 0:
            self.do(append(self.upper, None, token=f"end{self.counter}"))
            self.upper = None
            self.moved()

    @invariant()
    def agrees_with_the_model(self):
        state = self.state
        assert (state.since, state.upper) == (self.since, self.upper)
        check_trace(state)
        live = {part.key for batch in state.trace for part in batch.parts}
        assert live == set(self.live())
        garbage = {key: seqno for seqno, keys in state.garbage.items() for key in keys}
        assert garbage == {key: left for key, left in self.objects.items() if left is not None}
        holds = {who: (r.since, self.beats[who][1] + LEASE) for who, r in state.readers.items()}
        assert self.dead >= {who for who in state.expired if who in "abc"}
        holds |= {who: (hold.since, None) for who, hold in state.critical.items()}
        assert holds == self.holds
        assert state.seqno_since == min(self.hold_seqnos.values(), default=state.seqno)
        if state.rollups and not state.finalized:
            assert state.latest_rollup < state.seqno
        if state.since is None:
            assert state.trace == ()

    @invariant()
    def the_log_is_the_state(self):
        again = self.first
        for diff in self.log:
            again = apply_diff(again, diff)
        assert again == self.state


TestPureMachine = PureMachine.TestCase
TestPureMachine.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
