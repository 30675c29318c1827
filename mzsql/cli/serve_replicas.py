"""``mzsql serve-replicas``: the replicas of an environment, each a process of its own, kept running on this machine.

Promise: every replica that the catalog has (of the clusters named, or of all) has a process here, which is started anew when it has ended,
after pauses that double from half a second up to 30 while it does not stay for as long; what each says is passed on with its name before
it. A replica that is dropped has none any more, one that is created gets one within `_LOOK_SECONDS`. The end of this command is the end of
its processes: they are asked to end, and killed when they have not after `_GRACE_SECONDS`; where it is killed itself they end as well, with
the pipe that it holds. One that another process runs is left to it, and tried again.
"""

from __future__ import annotations

import contextlib
import random
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from typing import IO

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.locations import locate
from mzsql.catalog.commands.clusters import cluster_named
from mzsql.cli.stopping import stopping
from mzsql.location import LocationError
from mzsql.threads import Backoff

#: The catalog is looked at so often, in seconds.
_LOOK_SECONDS = 5.0
_TICK_SECONDS = 0.2
_GRACE_SECONDS = 60.0
_PAUSES = Backoff(0.5, 30.0)


class _Kept:
    """One replica's process, and the next one when it has ended."""

    def __init__(self, full_name: str, command: Sequence[str]) -> None:
        self.full_name = full_name
        self._command = command
        self._rng = random.Random()  # noqa: S311  for pauses alone
        self._process: subprocess.Popen[str] | None = None
        self._failures = 0
        self._began = self._again_at = 0.0
        self._ends_by: float | None = None

    def look(self) -> None:
        """Start it where it is not there, and it is time to."""
        now = time.monotonic()
        if self._process is not None:
            code = self._process.poll()
            if code is None:
                return
            self._closed()
            stayed = now - self._began
            self._failures = 1 if stayed > _PAUSES.most else self._failures + 1
            pause = _PAUSES.pause(self._failures, self._rng)
            self._again_at = now + pause
            _say(
                f"replica {self.full_name} has ended with {_ended(code)}; it is started again in {pause:.1f} s"
            )
        if now >= self._again_at:
            self._begin(now)

    def _begin(self, now: float) -> None:
        self._began = now
        # Ctrl-C at a terminal is for this command, which then ends its processes.
        self._process = subprocess.Popen(  # noqa: S603  this program
            self._command,
            # Nothing is written to it: it ends when this process does, however that ends.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        assert self._process.stdout is not None
        threading.Thread(
            target=_pass_on, args=(self.full_name, self._process.stdout), daemon=True
        ).start()

    def _closed(self) -> None:
        """Its process has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process = None

    def ask_to_end(self) -> None:
        """Ask its process to end."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def end(self, until: float) -> None:
        """Wait for that until a time of the monotonic clock, and kill it then."""
        if self._process is None:
            return
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self._kill()

    def _kill(self) -> None:
        assert self._process is not None
        _say(f"replica {self.full_name} has not ended within {_GRACE_SECONDS:g} s and is killed")
        self._process.kill()
        self._process.wait()

    def has_left(self) -> bool:
        """Whether the process of a replica that was dropped has ended, as it is to do by itself; it is killed when it has not in time."""
        if self._process is None:
            return True
        if self._process.poll() is not None:
            self._closed()
            return True
        now = time.monotonic()
        if self._ends_by is None:
            self._ends_by = now + _GRACE_SECONDS
        if now < self._ends_by:
            return False
        self._kill()
        return True


def _ended(code: int) -> str:
    return f"signal {-code}" if code < 0 else f"exit code {code}"


def _say(line: str) -> None:
    # The replicas are kept running also where nobody hears any more what they say.
    with contextlib.suppress(OSError, ValueError):
        sys.stdout.write(line + "\n")
        sys.stdout.flush()


def _pass_on(name: str, said: IO[str]) -> None:
    with said:
        for line in said:
            _say(f"{name}: {line.rstrip()}")


def serve(
    place: str,
    clusters: Sequence[str] | None,
    listen: str,
    advertise: str | None,
    passed: Sequence[str] = (),
) -> int:
    """Keep them running until this is asked to end, with what is ``passed`` on to each; the exit code.

    Raises:
        UndefinedObject: a cluster that was named is not there.
        EnvironmentRefused: there is no environment.
    """
    kept: dict[str, _Kept] = {}
    leaving: list[_Kept] = []
    with stopping() as stop:
        env = Environment.open(locate(place, create=False), read_only=True, create=False)
        try:
            for cluster in clusters or ():
                cluster_named(env.catalog.state, cluster)
            look_at, wanted = 0.0, dict[str, tuple[str, str]]()
            while not stop.is_set():
                if time.monotonic() >= look_at:
                    look_at = time.monotonic() + _LOOK_SECONDS
                    try:
                        wanted = _wanted(env, clusters)
                    except LocationError as error:
                        # Those that run go on; what has become of the others is seen when the stores answer.
                        _say(f"the stores do not answer: {error}")
                    leaving += [kept.pop(gid) for gid in kept.keys() - wanted.keys()]
                    for gid, (cluster, name) in wanted.items():
                        if gid not in kept:
                            command = _command(place, cluster, name, listen, advertise)
                            kept[gid] = _Kept(f"{cluster}.{name}", [*command, *passed])
                for one in kept.values():
                    one.look()
                leaving = [one for one in leaving if not one.has_left()]
                stop.wait(_TICK_SECONDS)
        finally:
            for one in kept.values():
                one.ask_to_end()
            until = time.monotonic() + _GRACE_SECONDS
            # Those whose replicas were dropped end by themselves.
            for one in (*kept.values(), *leaving):
                one.end(until)
            env.close()
    return 0


def _wanted(env: Environment, clusters: Sequence[str] | None) -> dict[str, tuple[str, str]]:
    """The replicas that are to run, by their ids: their clusters and names."""
    state = env.sync()
    names = {one.id: one.name for one in state.clusters.values()}
    return {
        one.id: (names[one.cluster_id], one.name)
        for one in state.replicas.values()
        if not clusters or names[one.cluster_id] in clusters
    }


def _command(place: str, cluster: str, name: str, listen: str, advertise: str | None) -> list[str]:
    command = [sys.executable, "-m", "mzsql.cli", "replica", "--env", place]
    command += ["--cluster", cluster, "--name", name, "--listen", listen, "--with-stdin"]
    return command if advertise is None else [*command, "--advertise", advertise]
