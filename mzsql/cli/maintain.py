"""Maintenance in a process of its own: compaction, garbage collection, cleanup after ended shards, leaked objects.

Promise: SIGTERM or Ctrl-C ends it after the current shard (a second Ctrl-C at once), with a report of what was done; a
shard that fails is reported and stops no other. With ``--forever`` shards are examined repeatedly and changed only when
it pays, so a round usually costs only reads; the search for leaks, which lists the whole Blob store, happens less
often.
"""

from __future__ import annotations

import sys
import time

import msgspec
from prometheus_client import start_http_server

from mzsql.cli.inspect import failure_lines
from mzsql.cli.place import Place
from mzsql.cli.stopping import Stop, stopping
from mzsql.location import LocationError
from mzsql.persist.cost import span
from mzsql.persist.leaks import Leak
from mzsql.persist.location_maintenance import Failure, MaintenanceReport, Wanted, maintain_location
from mzsql.repr.errors import InvalidParameter


class Rounds(msgspec.Struct, frozen=True, kw_only=True):
    """How often to run: once, or forever with pauses in seconds."""

    forever: bool = False
    interval: float = 10.0
    leaks_interval: float = 3600.0


def serve_metrics(port: int, address: str) -> None:
    """Serve Prometheus' default registry over HTTP, on a daemon thread.

    Args:
        port: the port.
        address: the address to listen on.

    Raises:
        InvalidParameter: the port is taken, or the address is not this machine's.
    """
    try:
        start_http_server(port, addr=address)
    except OSError as failure:
        raise InvalidParameter(
            f"metrics cannot be served at {address}, port {port}: {failure.strerror}",
            hint="Give another --metrics-port or --metrics-address; port 0 takes a free one.",
        ) from failure


def run_maintenance(place: Place, wanted: Wanted, rounds: Rounds, style: str) -> int:
    """Run the rounds and report on them.

    Args:
        place: the location.
        wanted: what to do in a round.
        rounds: how often.
        style: the format of the report.

    Returns:
        The exit code: 1 if something failed in the last round.
    """
    with stopping() as stop:
        leaks_due, first = 0.0, True
        while True:
            leaks = wanted.leaks_older_than_ms if time.monotonic() >= leaks_due else None
            if leaks is not None:
                leaks_due = time.monotonic() + rounds.leaks_interval
            this = msgspec.structs.replace(wanted, leaks_older_than_ms=leaks)
            done = _round(place, this, stop, style)
            if first or style == "json" or _anything(done):
                _tell(done, wanted, style)
            first = False
            if not rounds.forever or stop.wait(rounds.interval):
                return 1 if done.failures else 0


def _round(place: Place, wanted: Wanted, stop: Stop, style: str) -> MaintenanceReport:
    def tell_leak(leak: Leak) -> None:
        if style == "text":
            age = "of unknown age" if leak.age_ms is None else f"{span(leak.age_ms / 1000)} old"
            what = "deleted" if leak.deleted else "found"
            key = leak.key or "(unnamed)"
            sys.stdout.write(f"leaked {leak.kind} {what}: {key}, {leak.bytes} bytes, {age}\n")

    done = MaintenanceReport()
    try:
        maintain_location(
            place.client,
            wanted,
            done=done,
            protected=place.protected,
            stopped=stop.is_set,
            on_leak=tell_leak,
        )
    except LocationError as failure:
        done.failures.append(
            Failure(shard_id="the location", error=failure.message, hint=failure.hint or "")
        )
    return done


def _anything(done: MaintenanceReport) -> bool:
    return bool(
        done.failures
        or done.merges
        or done.rollups
        or done.objects_deleted
        or done.entries_truncated
        or done.leaks_deleted
    )


def _tell(done: MaintenanceReport, wanted: Wanted, style: str) -> None:
    if style == "json":
        sys.stdout.write(msgspec.json.encode(done).decode() + "\n")
    else:
        sys.stdout.write(_told(done, wanted) + "\n")
        for failure in done.failures:
            sys.stderr.write(failure_lines(failure.shard_id, failure.error, failure.hint))
    sys.stdout.flush()


def _told(done: MaintenanceReport, wanted: Wanted) -> str:
    told = f"{done.shards} shards, {done.due} with maintenance due"
    if wanted.dry_run:
        told += f", {done.collectable} objects of garbage to delete; dry run, nothing changed"
    else:
        told += (
            f": {done.merges} compactions of {done.batches_merged} batches, {done.rollups} rollups, "
            f"{done.objects_deleted} objects and {done.entries_truncated} log entries deleted"
        )
    if done.leaks_deleted:
        told += f"; {done.leaks_deleted} leaks deleted ({done.leaked_bytes_deleted} bytes)"
    if done.leaks_left:
        told += f"; {done.leaks_left} leaks left ({done.leaked_bytes_left} bytes)"
    if done.failures:
        told += f"; {len(done.failures)} failed"
    return told
