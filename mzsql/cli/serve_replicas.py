"""``mzsql serve-replicas``: runs the replicas of an environment on this machine, each in its own process.

Promise: every replica in the catalog (of the named clusters, or of all) has a process here. A process that ends is
restarted after a pause that doubles from half a second to 30, until one stays up that long; its output is forwarded,
each line prefixed with the replica's name. A dropped replica's process ends, a new replica gets one within
`_LOOK_SECONDS`. When this command ends its processes end: they are terminated, and killed after `_GRACE_SECONDS`; if it
is killed itself, they end with the pipe it holds. A replica that another process runs is left to that, and tried again.
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

#: The interval between reads of the catalog, in seconds.
_LOOK_SECONDS = 5.0
_TICK_SECONDS = 0.2
_GRACE_SECONDS = 60.0
_PAUSES = Backoff(0.5, 30.0)


class _Kept:
    """A replica's process, restarted when it ends."""

    def __init__(self, full_name: str, command: Sequence[str]) -> None:
        self.full_name = full_name
        self._command = command
        self._rng = random.Random()  # noqa: S311  for pauses alone
        self._process: subprocess.Popen[str] | None = None
        self._failures = 0
        self._began = self._again_at = 0.0
        self._ends_by: float | None = None

    def look(self) -> None:
        """Start the process if it is not running and its pause is over."""
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
        # Ctrl-C at a terminal goes to this command, which then ends its processes.
        self._process = subprocess.Popen(  # noqa: S603  this program
            self._command,
            # Nothing is written to this pipe: the child ends when it closes, however this process ends.
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
        """The process has ended."""
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._process = None

    def ask_to_end(self) -> None:
        """Terminate the process."""
        if self._process is not None and self._process.poll() is None:
            self._process.terminate()

    def end(self, until: float) -> None:
        """Wait for the process until a time of the monotonic clock, then kill it."""
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
        """Whether a dropped replica's process has ended, as it does by itself; it is killed after a time."""
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
    # The replicas keep running even when nobody reads this output any more.
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
    """Run the replicas until asked to stop.

    Args:
        place: the environment.
        clusters: the clusters; None for all.
        listen: where the processes listen.
        advertise: the host by which others reach them.
        passed: further arguments for each process.

    Returns:
        The exit code.

    Raises:
        UndefinedObject: there is no such cluster.
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
                        # The processes go on; changes to the replicas are seen when the stores answer again.
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
            # Processes of dropped replicas end by themselves.
            for one in (*kept.values(), *leaving):
                one.end(until)
            env.close()
    return 0


def _wanted(env: Environment, clusters: Sequence[str] | None) -> dict[str, tuple[str, str]]:
    """The ids of the replicas that should run, with their clusters and names."""
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
