"""A controller and a replica with a socket between them: it breaks, strangers call, leaders change, and the dataflows go on."""

from __future__ import annotations

import contextlib
import socket
import threading
import time

import compute_kit as kit
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mzsql.compute import protocol as p
from mzsql.compute.controller.client import ReplicaClient
from mzsql.compute.controller.introspection import Subscribed
from mzsql.compute.dependencies import ComputeSettings
from mzsql.compute.replica.introspection import Introspection
from mzsql.compute.replica.replica import Replica
from mzsql.compute.replica.scheduling import lifecycle
from mzsql.compute.transport import frames
from mzsql.compute.transport import link as links
from mzsql.compute.transport.callers import MOST_CALLERS
from mzsql.compute.transport.frames import Address, Hello
from mzsql.compute.transport.history import CommandHistory
from mzsql.compute.transport.link import RemoteLink, answers
from mzsql.compute.transport.server import ReplicaServer
from mzsql.lir.sealed import SealedDataflow
from mzsql.repr.errors import NotReadable, UndefinedObject
from mzsql.repr.ids import TransientIds
from mzsql.threads import Backoff, Supervised

WAIT = 60.0
SETTINGS = ComputeSettings(step_engine="duckdb", since_seconds=0.0, retry_seconds=0.01)
IDENTITY = Hello("env", "1.0", "r1", None, b"", b"")


def eventually(found, what=""):
    """Wait until something is so; a thread of the other side is to see to it."""
    until = time.monotonic() + WAIT
    while not found():
        assert time.monotonic() < until, what
        time.sleep(0.01)


class Side:
    """A replica that listens, in the place of a process; and controllers that command it, each in the place of one."""

    def __init__(self, world):
        self.world = world
        self.made = []
        self.failures = []
        self.clients = []
        self.begin()

    def begin(self):
        """Another life of the replica."""
        self.secret = frames.new_secret()
        sock = socket.create_server(("127.0.0.1", 0))
        self.address = Address("127.0.0.1", sock.getsockname()[1], self.secret)
        self.server = ReplicaServer(
            sock,
            self.secret,
            IDENTITY,
            self.connect,
            self.world.persist.supervisor.start,
            self.failures.append,
        )

    def connect(self, first, respond):
        self.told = []

        def telling(response):
            self.told.append(response)
            respond(response)

        made = Replica(
            first,
            telling,
            persist=self.world.persist,
            spark=self.world.spark,
            storage=self.world.storage,
            registry=self.world.registry,
        )
        self.made.append(made)
        return made

    def controller(self, epoch=1, *, settings=SETTINGS, address=None, **identity):
        hello = Hello(
            **{
                **{f: getattr(IDENTITY, f) for f in Hello.__struct_fields__},
                **identity,
                "epoch": epoch,
            }
        )

        def link(first, respond):
            return RemoteLink(
                first,
                respond,
                address=address or (lambda: self.address),
                hello=hello,
                start=self.world.persist.supervisor.start,
                monotonic=time.monotonic,
                timeout=WAIT,
            )

        subscribed = Subscribed(TransientIds())
        made = ReplicaClient(link, "r1", settings, self.world.storage, self.world.sink, subscribed)
        self.clients.append(made)
        return made

    def hydrations(self):
        return [
            r.stats.object_id
            for r in self.told
            if isinstance(r, p.Refreshed) and r.stats.kind == "hydration"
        ]

    def close(self):
        for client in self.clients:
            client.close()
        self.server.close()


@pytest.fixture
def world():
    with kit.in_memory() as made:
        made.storage.write("u1", [(1, 10, "x", 1, 1), (2, 20, "y", 1, 1)], upper=2)
        made.storage.write("u2", [(1, "north", 1, 1)], upper=2)
        yield made


@pytest.fixture
def side(world):
    made = Side(world)
    yield made
    made.close()


def totals(shard):
    return p.CreateDataflow("u3", "totals", SealedDataflow.of(kit.region_totals()), shard, 1)


def index(gid="u7", key=0):
    plan = kit.arrange(1, kit.get(0, "u1", kit.ORDERS), [key], kit.ORDERS)
    export = kit.lir.IndexExport(gid, "u1", (kit.Column(key),))
    desc = kit.dataflow(gid, plan, kit.ORDERS, {"u1": kit.ORDERS}, export=export)
    return p.CreateDataflow(gid, "i", SealedDataflow.of(desc), None, 1)


def through_index(shard):
    """Orders through the index u7, summed by customer: the view u8."""
    form = kit.arranged_by([0], 3)
    there = kit.lir.AvailableCollections(False, (form,), kit.ORDERS)
    read = kit.lir.Get(0, "u1", there, kit.lir.PassArrangements(), kit.ORDERS)
    reduce = kit.reduce_sum_count(1, read, key=[0], value=1, arity=3)
    key = (kit.Column(0),)
    reduce = kit.lir.Reduce(reduce.lir_id, read, key, reduce.key_val, reduce.plan, reduce.mfp_after)
    imported = kit.lir.IndexImport("u7", "u1", key, kit.RelationType(kit.ORDERS))
    plan = kit.read_back(2, reduce, 1, SUMS)
    desc = kit.dataflow("u8", plan, SUMS, {}, indexes=(imported,))
    return p.CreateDataflow("u8", "sums", SealedDataflow.of(desc), shard, 1)


SUMS = (kit.INT, kit.BIG, kit.BIG)


def write(world, upper):
    world.storage.write("u1", [(1, 5, "z", upper - 1, 1)], upper=upper)
    world.storage.write("u2", [], upper=upper)


def test_a_replica_that_is_met_again_goes_on_and_hydrates_only_what_is_missing(world, side):
    shard = world.storage.add("u3", (kit.TXT, kit.BIG, kit.BIG), errors=True)
    first = side.controller(1)
    first.create_dataflow(totals(shard))
    first.create_dataflow(index())
    first.wait_until("u3", 1, WAIT)
    first.wait_until("u7", 1, WAIT)
    told = world.sink.current()
    assert {row.object_id for row in told} == {"u3", "u7"}
    first.close()
    # Nobody commands it, and it goes on.
    write(world, 3)
    eventually(
        lambda: any(isinstance(r, p.Frontiers) and r == p.Frontiers("u3", 3) for r in side.told)
    )

    second = side.controller(2)
    second.create_dataflow(totals(shard))
    second.create_dataflow(index("u8", key=1))
    second.initialization_complete()
    second.wait_until("u3", 2, WAIT)
    second.wait_until("u8", 2, WAIT)
    eventually(
        lambda: any(
            isinstance(r, p.Status) and (r.object_id, r.state) == ("u7", "dropped")
            for r in side.told
        )
    )
    assert sorted(side.hydrations()) == ["u3", "u7", "u8"]
    assert len(side.made) == 1
    # What the first has left of others goes when whoever commands says what there is, as a controller does.
    world.sink.keep({("u3", "r1"), ("u8", "r1")})
    eventually(lambda: {row.object_id for row in world.sink.current()} == {"u3", "u8"})
    assert {one.object_id: one.state for one in second.status()} == {
        "u3": "running",
        "u8": "running",
    }


def test_a_dataflow_with_another_plan_is_made_anew_when_the_old_one_is_gone(side):
    first = side.controller(1)
    first.create_dataflow(index())
    first.wait_until("u7", 1, WAIT)
    first.close()
    second = side.controller(2)
    second.create_dataflow(index(key=1))
    second.wait_until("u7", 1, WAIT)
    found = second.peek("u7", 1, WAIT)
    assert sorted(found["c0"].to_pylist()) == [10, 20]
    assert side.hydrations() == ["u7", "u7"]


def test_another_number_of_workers_is_another_replica(side):
    first = side.controller(1)
    first.create_dataflow(index())
    first.wait_until("u7", 1, WAIT)
    first.close()
    second = side.controller(2, settings=ComputeSettings(workers=3, step_engine="duckdb"))
    second.create_dataflow(index())
    second.wait_until("u7", 1, WAIT)
    assert len(side.made) == 2
    assert side.hydrations() == ["u7"]  # by the second, of which the first is forgotten


def test_what_a_broken_connection_owes_is_settled_and_told_again(world, side):
    there = [True]
    client = side.controller(1, address=lambda: side.address if there[0] else None)
    client.create_dataflow(index())
    client.wait_until("u7", 1, WAIT)
    told = world.sink.current()
    assert told
    parted = world.sink.told
    # A peek that waits for its time is answered when the connection ends.
    there[0] = False
    side.server._controller.end()
    eventually(lambda: client.offline == "no process runs it", client.offline)
    # What it has told stands until it tells it anew.
    eventually(lambda: world.sink.told is not parted and not world.sink.told)
    assert world.sink.current() == told
    client.settle(WAIT)  # is not kept waiting
    with pytest.raises(NotReadable, match="it is away"):
        client.peek("u7", 1, WAIT)
    client.drop("u7")
    eventually(lambda: not client._dataflows)
    write(world, 3)
    client.create_dataflow(index("u8"))
    there[0] = True
    client.wait_until("u8", 2, WAIT)
    assert client.offline is None
    client.initialization_complete()
    eventually(lambda: {row.object_id for row in world.sink.current()} == {"u8"})
    eventually(lambda: not [e for e in world.registry.entries("r1") if "u7" in e])


def test_a_replica_that_begins_anew_is_given_the_dropped_index_that_its_view_reads(world, side):
    shard = world.storage.add("u8", SUMS, errors=True)
    client = side.controller(1)
    client.create_dataflow(index())
    client.create_dataflow(through_index(shard))
    client.initialization_complete()
    client.wait_until("u8", 1, WAIT)
    client.drop("u7")
    # Maintained, and not shown any more.
    assert [one.object_id for one in client.status()] == ["u8"]
    assert {row.object_id for row in world.sink.current()} == {"u8"}
    side.server._controller.end()
    write(world, 3)
    client.wait_until("u8", 2, WAIT)
    side.server.close()
    side.begin()
    write(world, 4)
    client.wait_until("u8", 3, WAIT)
    expected = kit.recomputed(
        world.storage,
        "SELECT c0, sum(c1 * mz_diff)::BIGINT, sum(mz_diff)::BIGINT FROM u1 GROUP BY c0",
        ["u1"],
        3,
    )
    assert kit.stored(world.storage, "u8", 3) == expected
    assert {row.object_id for row in world.sink.current()} == {"u8"}
    # Nothing new reads it, and it goes with the last one that does.
    with pytest.raises(UndefinedObject, match="index u7"):
        client.create_dataflow(msgspec.structs.replace(through_index(shard), id="u9"))
    client.drop("u8")
    eventually(lambda: not client._dataflows, client._dataflows)
    eventually(lambda: world.registry.entries("r1") == {})
    assert list(client._link._conversation._history.commands())[1:] == [p.InitializationComplete()]


def test_what_was_refused_and_dropped_is_not_told_again(world, side):
    client = side.controller(1)
    # An index does not have an output shard.
    wrong = msgspec.structs.replace(index(), output_shard=world.persist.new_shard_id())
    client.create_dataflow(wrong)
    eventually(lambda: [one.state for one in client.status()] == ["refused"])
    client.drop("u7")
    eventually(lambda: not client._dataflows)
    assert len(list(client._link._conversation._history.commands())) == 1
    # Nothing of it is left in the way, here or there.
    client.create_dataflow(index())
    client.wait_until("u7", 1, WAIT)
    client.drop("u7")
    eventually(lambda: not client._dataflows)
    eventually(lambda: not side.server._replica._known)


def test_one_that_was_refused_is_told_of_after_what_came_since():
    history = CommandHistory(p.CreateInstance("r1", SETTINGS))
    history.add(
        msgspec.structs.replace(
            through_index(None), dataflow=SealedDataflow.of(kit.region_totals())
        )
    )
    history.add(index())
    history.add(through_index(None))
    assert [one.id for one in list(history.commands())[1:]] == ["u7", "u8"]


def test_a_greeting_that_comes_in_drops_ends_at_one_deadline():
    """Each byte comes within the seconds that the whole greeting has."""
    ours, theirs = socket.socketpair()
    until = frames.by_when()
    done = threading.Event()

    def dripping():
        while not done.is_set():
            with contextlib.suppress(OSError):
                theirs.send(b"\x00")
            done.wait(frames.GREETING_SECONDS / 10)

    thread = threading.Thread(target=dripping)
    thread.start()
    try:
        # A frame of 4,096 bytes would take 20 minutes so.
        theirs.send(frames._HEADER.pack(frames.MOST_BYTES_BEFORE, frames.GREETING))
        with ours, pytest.raises(TimeoutError):
            frames.greet(ours, "secret", IDENTITY, until)
    finally:
        done.set()
        thread.join()
        theirs.close()


def test_a_process_that_was_started_anew_is_met_at_once(side, monkeypatch):
    # Whoever is not there is tried again after longer than this test waits.
    monkeypatch.setattr(links, "_PAUSES", Backoff(600.0, 600.0))
    nobody = socket.create_server(("127.0.0.1", 0))
    at = [Address("127.0.0.1", nobody.getsockname()[1], side.secret)]
    nobody.close()
    client = side.controller(1, address=lambda: at[0])
    eventually(lambda: "nobody answers" in (client.offline or ""))
    at[0] = side.address
    eventually(lambda: client.offline is None)


def test_a_replica_that_takes_nothing_is_waited_for_once(world):
    sent = []

    class Stuck:
        apart, offline, gone = True, None, False
        send = staticmethod(sent.append)

        def close(self):
            pass

        release = close

    links = []

    def connect(_, respond):
        links.append(respond)
        return Stuck()

    client = ReplicaClient(connect, "r1", SETTINGS, world.storage, world.sink)
    assert not client.settle(0.01)
    assert not client.settle(WAIT)
    assert sent == [p.Ping(1)]
    links[0](p.Pong(1))
    assert not client.settle(0.01)
    assert sent == [p.Ping(1), p.Ping(2)]
    client.close()


def test_introspection_goes_on_after_an_error_that_nobody_expects(world, side, monkeypatch):
    client = side.controller(1)
    client.introspect(0.01)
    client.create_dataflow(index())

    def frontiers():
        told = world.sink.introspection.get("mz_internal.mz_compute_frontiers_unified", {})
        return {row for row, count in told.items() if count}

    eventually(lambda: frontiers() == {("r1", "u7", 2)}, frontiers())
    refresh, failed = Introspection._refresh, []

    def failing(self):
        if not failed:
            failed.append(self)
            raise RuntimeError("planted")
        return refresh(self)

    monkeypatch.setattr(Introspection, "_refresh", failing)
    eventually(lambda: failed)
    write(world, 3)
    eventually(lambda: frontiers() == {("r1", "u7", 3)}, frontiers())
    (thread,) = [one for one in world.persist.supervisor.statuses() if one.name == "introspection"]
    assert thread.restarts == 1


def test_import_frontiers_go_on_while_a_step_hangs(world, side, monkeypatch):
    def frontiers(name):
        relation = f"mz_internal.mz_compute_{name}_unified"
        with world.sink.lock:
            told = world.sink.introspection.get(relation, {})
            return {row for row, count in told.items() if count}

    run_step, go_on = lifecycle.run_step, threading.Event()

    def hanging(*given, **named):
        assert go_on.wait(WAIT)
        return run_step(*given, **named)

    client = side.controller(1)
    client.introspect(0.01)
    client.create_dataflow(index())
    imported = "import_frontiers"
    eventually(lambda: frontiers("frontiers") == {("r1", "u7", 2)}, "it is hydrated")
    monkeypatch.setattr(lifecycle, "run_step", hanging)
    for upper in (3, 4):
        write(world, upper)
        eventually(lambda: frontiers(imported) == {("r1", "u7", "u1", upper)}, upper)  # noqa: B023  called here
    assert frontiers("frontiers") == {("r1", "u7", 2)}
    go_on.set()
    eventually(lambda: frontiers("frontiers") == {("r1", "u7", 4)}, "it is done")


def test_what_a_replica_tells_of_itself_stands_until_it_tells_it_anew_or_is_gone(
    world, side, monkeypatch
):
    monkeypatch.setattr(links, "GONE_SECONDS", 1.0)
    there = [True]
    client = side.controller(1, address=lambda: side.address if there[0] else None)
    client.introspect(0.01)
    client.create_dataflow(index())

    def frontiers():
        told = world.sink.introspection.get("mz_internal.mz_compute_frontiers_unified", {})
        with world.sink.lock:
            return {row for row, count in told.items() if count}

    eventually(lambda: frontiers() == {("r1", "u7", 2)}, frontiers())
    hydrated = world.sink.current()
    side.server._controller.end()
    write(world, 3)
    # Met again, it tells all of it, and nobody has seen it gone or twice (the sink looks at each row).
    eventually(lambda: frontiers() == {("r1", "u7", 3)}, frontiers())
    assert not client._link.gone
    there[0] = False
    side.server._controller.end()
    eventually(lambda: client.offline == "no process runs it", client.offline)
    client.look_after()
    assert frontiers() == {("r1", "u7", 3)}
    assert world.sink.current() == hydrated
    eventually(lambda: client._link.gone)
    client.look_after()
    assert frontiers() == set()
    assert world.sink.current() == set()
    there[0] = True
    eventually(lambda: frontiers() == {("r1", "u7", 3)}, frontiers())
    eventually(lambda: world.sink.current() == hydrated)
    client.look_after()
    client.introspect(None)
    assert frontiers() == set()
    write(world, 4)
    client.wait_until("u7", 3, WAIT)
    assert frontiers() == set()


@pytest.mark.parametrize(
    ("identity", "reason"),
    [
        ({"environment": "other"}, "it is a replica of another environment (env)"),
        ({"build": "2.0"}, "it runs mzsql 1.0, and the process that leads 2.0"),
        ({"replica_id": "r2"}, "it is replica r1, not r2"),
        ({"epoch": 4}, "a newer leader commands it"),
    ],
)
def test_who_is_not_its_controller_is_told_why_and_changes_nothing(world, side, identity, reason):
    own = side.controller(5)
    own.create_dataflow(index())
    own.wait_until("u7", 1, WAIT)
    other = side.controller(**{"epoch": 6, **identity})
    eventually(lambda: other.offline == reason, other.offline)
    other.close()
    write(world, 3)
    own.wait_until("u7", 2, WAIT)
    assert own.offline is None
    assert len(side.made) == 1


def test_the_controller_of_a_newer_leader_takes_over_from_one_that_still_lives(world, side):
    old = side.controller(1)
    old.create_dataflow(index())
    old.wait_until("u7", 1, WAIT)
    new = side.controller(2)
    new.create_dataflow(index())
    new.wait_until("u7", 1, WAIT)
    eventually(lambda: old.offline == "a newer leader commands it", old.offline)
    write(world, 3)
    new.wait_until("u7", 2, WAIT)
    assert side.hydrations() == ["u7"]


def test_strangers_are_sent_away_and_learn_nothing(side):
    own = side.controller(1)
    eventually(lambda: own.offline is None)
    wrong = Address(side.address.host, side.address.port, frames.new_secret())
    # Whoever does not know the secret is left without a word.
    assert "has closed the connection" in (answers(wrong, IDENTITY) or "")
    for junk in (b"", b"GET / HTTP/1.1\r\n\r\n" * 10, b"\xff" * 64, b"\x00\x00\x00\x01\x03\xc1"):
        at = (wrong.host, wrong.port)
        # It may hang up while there is more to come.
        with socket.create_connection(at, WAIT) as sock, contextlib.suppress(OSError):
            sock.sendall(junk)
            sock.shutdown(socket.SHUT_WR)
            while sock.recv(4096):
                pass
    assert answers(side.address, IDENTITY) is None
    own.create_dataflow(index())
    own.wait_until("u7", 1, WAIT)


def called(stack, side):
    """A connection that has got the replica's greeting."""
    sock = stack.enter_context(
        socket.create_connection((side.address.host, side.address.port), WAIT)
    )
    frames.receive_frame(sock, until=time.monotonic() + WAIT)
    return sock


def test_who_says_nothing_or_little_keeps_nobody_waiting(world, side, monkeypatch):
    monkeypatch.setattr(frames, "GREETING_SECONDS", 3600.0)
    with contextlib.ExitStack() as stack:
        callers = [called(stack, side) for _ in range(8)]
        header = frames._HEADER.pack(64, frames.GREETING)
        for said, caller in zip(
            (header[:1], header[:4], header, header + b"half"), callers[4:], strict=True
        ):
            caller.sendall(said)
        # Each of them may take an hour.
        assert answers(side.address, IDENTITY) is None
        own = side.controller(1)
        own.create_dataflow(index())
        own.wait_until("u7", 1, WAIT)
        crowd = [called(stack, side) for _ in range(MOST_CALLERS)]
        # Those who have waited longest make room.
        assert [caller.recv(1) for caller in callers] == [b""] * len(callers)
        for caller in crowd:
            caller.setblocking(False)
            with pytest.raises(BlockingIOError):
                caller.recv(1)
        write(world, 3)
        own.wait_until("u7", 2, WAIT)
        assert own.offline is None


def test_who_says_nothing_is_left_when_its_time_is_over(side, monkeypatch):
    monkeypatch.setattr(frames, "GREETING_SECONDS", 0.2)
    with contextlib.ExitStack() as stack:
        assert called(stack, side).recv(1) == b""


def test_an_impostor_at_the_address_of_a_replica_gets_no_command():
    with socket.create_server(("127.0.0.1", 0)) as sock:
        address = Address("127.0.0.1", sock.getsockname()[1], frames.new_secret())
        heard = []

        def impostor():
            one, _ = sock.accept()
            with one:
                one.settimeout(WAIT)
                nonce = frames.new_nonce()
                until = frames.by_when()
                frames._tell(one, frames.Greeting(frames.PROTOCOL, nonce), until)
                hello = frames._hear(one, Hello, until)
                frames.welcome(one, "a guess", hello, nonce, "1.0", until)
                heard.append(one.recv(1))

        thread = threading.Thread(target=impostor)
        thread.start()
        assert (
            answers(address, IDENTITY) == "another process than the replica answers at its address"
        )
        thread.join(WAIT)
        assert heard == [b""]


def test_inputs_are_held_for_a_replica_of_another_process_as_long_as_it_needs_them(world, side):
    shard = world.storage.add("u3", (kit.TXT, kit.BIG, kit.BIG), errors=True)
    client = side.controller(1)
    client.create_dataflow(totals(shard))
    client.wait_until("u3", 1, WAIT)
    write(world, 3)
    client.wait_until("u3", 2, WAIT)
    side.server.close()  # its holds may end with its process
    eventually(lambda: client.offline is not None)
    held = client._dataflows["u3"].holds
    assert len(held) == 2
    assert {hold.since for hold in held} <= {1, 2}
    client.close()


@pytest.mark.parametrize(
    "kind",
    [
        "replica-link",
        "replica-commands",
        "replica-listener",
        "replica-deferred",
        "controller-commands",
        "controller-responses",
    ],
)
def test_each_thread_of_the_two_goes_on_after_an_error_that_nobody_expects(
    world, side, kind, monkeypatch
):
    client = side.controller(1)
    client.create_dataflow(index())
    client.wait_until("u7", 1, WAIT)
    well, planted, met = Supervised.well, threading.Event(), threading.Event()

    def failing(own):
        if own.status.name == kind and planted.is_set():
            planted.clear()
            met.set()
            raise RuntimeError("planted")
        well(own)

    monkeypatch.setattr(Supervised, "well", failing)
    planted.set()
    # Something for each of them to do.
    answers(side.address, IDENTITY)
    side.server._deferred.put(lambda: None)
    client.create_dataflow(index("u8", key=1))
    assert met.wait(WAIT)
    write(world, 3)
    client.wait_until("u7", 2, WAIT)
    client.wait_until("u8", 2, WAIT)
    eventually(lambda: client.offline is None, client.offline)
    # Whoever comes next is met, too.
    client.close()
    other = side.controller(2)
    other.create_dataflow(index("u8", key=1))
    other.wait_until("u8", 2, WAIT)


gids = st.sampled_from(["u1", "u2", "u3"])
commands = st.lists(
    st.one_of(
        gids.map(lambda gid: ("create", gid)),
        gids.map(lambda gid: ("drop", gid)),
        st.tuples(gids, st.integers(1, 9)).map(lambda one: ("allow", *one)),
        st.sampled_from(["duckdb", "spark", None]).map(lambda engine: ("configure", engine)),
        st.just(("complete",)),
        st.just(("ping",)),
    )
)


def standing(sent):
    """What a replica stands at after commands: its engine, its dataflows and what their indexes may let go of."""
    engine, flows, complete = None, {}, False
    for one in sent:
        match one:
            case p.CreateInstance(settings=settings):
                engine = settings.step_engine
            case p.UpdateConfiguration(step_engine=new):
                engine = new or engine
            case p.CreateDataflow(id=gid, name=name):
                flows[gid] = [name, None]
            case p.DropDataflow(id=gid):
                flows.pop(gid, None)
            case p.AllowCompaction(id=gid, frontier=frontier):
                if gid in flows:
                    flows[gid][1] = frontier
            case p.InitializationComplete():
                complete = True
    return engine, flows, complete


@given(commands)
def test_the_history_of_commands_leads_where_they_did(steps):
    first = p.CreateInstance("r1", SETTINGS)
    history, sent, alive = CommandHistory(first), [first], set()
    for number, step in enumerate(steps):
        match step:
            case ("create", gid) if gid not in alive:
                alive.add(gid)
                command = p.CreateDataflow(
                    gid, str(number), SealedDataflow.of(kit.region_totals()), None, 1
                )
            case ("drop", gid):
                alive.discard(gid)
                command = p.DropDataflow(gid)
            case ("allow", gid, frontier) if gid in alive:
                command = p.AllowCompaction(gid, frontier)
            case ("configure", engine):
                command = p.UpdateConfiguration(engine)
            case ("complete",):
                command = p.InitializationComplete()
            case _:
                command = p.Ping(number)
        history.add(command)
        sent.append(command)
    short = list(history.commands())
    assert standing(short) == standing(sent)
    assert len(short) <= 2 + 2 * len(alive)
