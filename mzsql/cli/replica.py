"""``mzsql replica``: this process is a replica of a cluster.

Promise: one line says that it runs and where it listens, another why it ends. The exit code is 0 if it was asked to end
or the replica was dropped; a refusal or failure is one error with another code.
"""

from __future__ import annotations

import os
import re
import stat
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from pyspark.sql import SparkSession

from mzsql.adapter.environment.locations import locate
from mzsql.adapter.replicas.process import Listening, ReplicaOf, open_for_replica
from mzsql.cli.stopping import ending_with_input, stopping
from mzsql.compute.engines.spark_session import is_submitted
from mzsql.repr.errors import InvalidParameter
from mzsql.threads import Wakeup

#: Names of settings whose values are secret. Narrower than `spark.redaction.regex`: that also matches settings with paths and
#: with names of Kubernetes' secrets, which are none themselves.
_SECRET = re.compile(r"(secret|password|token|(access|secret)[._-]?key)$", re.IGNORECASE)
_NAMES_SECRET = re.compile(r"^spark\.kubernetes\..*(\.secrets\.|\.secretKeyRef\.)")


def place_of(env: Path | None, profile: str | None) -> str:
    """The name of the environment: its directory, or ``profile:NAME``.

    Raises:
        InvalidParameter: neither is given, or both.
    """
    if profile is not None and env is not None:
        raise InvalidParameter("give either --env or --profile, not both")
    if profile is not None:
        return f"profile:{profile}"
    if env is None:
        raise InvalidParameter("give the environment: --env DIRECTORY, or --profile NAME")
    return os.fspath(env)


def listening_at(listen: str, advertise: str | None) -> Listening:
    """The address in ``--listen`` and ``--advertise``.

    Raises:
        InvalidParameter: it is no address.
    """
    host, colon, port = listen.rpartition(":")
    if not colon:
        host, port = listen, "0"
    if not host or not port.isdigit() or int(port) > 65535:
        raise InvalidParameter(
            f'invalid address for --listen: "{listen}"', hint="HOST or HOST:PORT"
        )
    return Listening(host, int(port), advertise)


def settings_in(conf: Sequence[str]) -> dict[str, str]:
    """The settings in ``--conf``, each of the form ``spark.KEY=VALUE``.

    Raises:
        InvalidParameter: one is no setting of Spark's, or is a credential.
    """
    found = {}
    for one in conf:
        key, equals, value = one.partition("=")
        if not equals or not key.startswith("spark."):
            raise InvalidParameter(
                f'invalid setting for --conf: "{one}"',
                hint="spark.KEY=VALUE, as spark-submit has it",
            )
        if key == "spark.master":
            raise InvalidParameter("give Spark's master as --master, not among --conf")
        if _SECRET.search(key) and not _NAMES_SECRET.match(key):
            raise InvalidParameter(
                f"{key} is a credential, which everybody on this machine would see on the command line",
                hint="Credentials of stores belong into a profile (--profile), others into Spark's own spark-defaults.conf.",
            )
        found[key] = value
    return found


def _spark(master: str | None, conf: dict[str, str]) -> SparkSession:
    from mzsql.compute.engines.spark_session import local_session  # noqa: PLC0415  PySpark takes long to load

    return local_session(app_name="mzsql replica", master=master, conf=conf)


def run_replica(
    place: str,
    cluster: str,
    name: str,
    listen: str,
    advertise: str | None,
    *,
    with_input: bool,
    master: str | None = None,
    conf: Sequence[str] = (),
) -> int:
    """Run the replica until it ends.

    Args:
        place: the environment.
        cluster: the replica's cluster.
        name: its name in the cluster.
        listen: the address it listens on.
        advertise: the address by which others reach it.
        with_input: whether to end with standard input. Under `spark-submit`, which gives its application a pipe, it
            always does: a signal that ends `spark-submit` reaches nobody else.
        master: Spark's master. If given, Spark starts first, so that an unreachable one ends this before anything else.
        conf: Spark's settings, as in ``--conf``.

    Returns:
        The exit code.

    Raises:
        SqlError: it cannot run, or not any longer.
    """
    listening = listening_at(listen, advertise)
    spark = partial(_spark, master, settings_in(conf))
    wakeup = Wakeup()
    with stopping(wakeup.wake) as stop:
        if with_input or (is_submitted() and _has_piped_input()):

            def input_ended() -> None:
                stop.ask()
                wakeup.wake()

            ending_with_input(input_ended)
        env = open_for_replica(locate(place, create=False), cluster, name)
        try:
            if master is not None:
                spark()
            one = ReplicaOf(env, cluster, name, listening=listening, spark=spark, wakeup=wakeup)
            warning = one.too_large()
            if warning is not None:
                sys.stderr.write(f"WARNING:  {warning}\n")
            _say(f"replica {one.full_name} listens at {one.address}")
            try:
                why = one.run(stop.is_set)
            finally:
                one.close()
            _say(f"replica {one.full_name} has ended: {why}")
        finally:
            env.close()
    return 0


def _has_piped_input() -> bool:
    """Whether standard input is a pipe with an open other end."""
    try:
        return stat.S_ISFIFO(os.fstat(0).st_mode)
    except OSError:
        return False  # there is none


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()
