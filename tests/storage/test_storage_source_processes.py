"""Real processes that write one source, killed at random moments: each message once, at the time its binding tells."""

from __future__ import annotations

import multiprocessing
import random
import time
from pathlib import Path

import source_processes as processes
from source_processes import PARTITIONS, SCHEMA, Steady, client_at

from mzsql.persist import SystemClock
from mzsql.storage import BindingMinter, SourceWriter
from mzsql.storage.bindings import BINDINGS_SCHEMA

#: How long a busy machine may take to get to something, in seconds.
PATIENCE = 120

CONTEXT = multiprocessing.get_context("forkserver")


class Running:
    """One instance in a process of its own."""

    def __init__(self, *args: object) -> None:
        self.pipe, theirs = CONTEXT.Pipe(duplex=False)
        self.process = CONTEXT.Process(target=processes.instance, args=(*args, theirs), daemon=True)
        self.process.start()
        theirs.close()
        self.uppers: list[int] = []

    def hear(self) -> None:
        try:
            while self.pipe.poll():
                self.uppers.append(self.pipe.recv())
        except EOFError:
            assert self.process.exitcode == -9, "an instance ended by itself"

    def await_uppers(self, count: int) -> None:
        """Wait until it has reached so many uppers."""
        while len(self.uppers) < count:
            assert self.pipe.poll(PATIENCE), "an instance makes no progress"
            self.hear()

    def kill(self) -> list[int]:
        assert self.process.is_alive(), "an instance ended by itself"
        self.process.kill()
        self.process.join(60)
        self.hear()
        return self.uppers


def test_killed_instances_of_a_source_writer_write_each_message_once(tmp_path: Path) -> None:
    place, rng = str(tmp_path), random.Random(5)
    with client_at(place) as client:
        bindings, data = client.new_shard_id(), client.new_shard_id()
        auditor = client.open_reader(bindings, BINDINGS_SCHEMA)
        source = Steady(time.time())

        def start() -> Running:
            return Running(place, bindings, data, source.start, rng.random() < 0.5)

        running = [start() for _ in range(3)]
        acknowledged: list[int] = []
        kills = 0
        while kills < 10 or len(acknowledged) < 10:
            victim = rng.randrange(len(running))
            running[victim].await_uppers(rng.randrange(4))
            for one in running:
                one.hear()
            acknowledged += running[victim].kill()
            running[victim] = start()
            kills += 1
        for one in running:
            acknowledged += one.kill()
        minter = BindingMinter(client, bindings, now=SystemClock().now_ms)
        upper = minter.mint(source.high_watermarks())
        writer = SourceWriter(client, source, bindings=bindings, shard_id=data, schema=SCHEMA)
        assert writer.step() == upper
        assert upper is not None
        assert max(acknowledged) <= upper
        rows = auditor.updates(0, upper).to_pylist()
        minted = sorted(
            (r["offset"], r["mz_time"], r["partition"]) for r in rows if r["mz_diff"] > 0
        )
        expected = []
        for partition in PARTITIONS:
            first = 0
            for last, ts in [b[:2] for b in minted if b[2] == partition]:
                expected += [
                    (partition, o, f"{partition}/{o}", ts, 1) for o in range(first, last + 1)
                ]
                first = last + 1
        reader = client.open_reader(data)
        names = [*SCHEMA.names, "mz_time", "mz_diff"]
        found = sorted(tuple(r[n] for n in names) for r in reader.updates(0, upper).to_pylist())
        assert found == sorted(expected)
        assert len(found) > 100
