"""``mzsql open``: opens an environment, waits until all it maintains is taken up, and reports where the time went.

Promise: afterwards every optimized plan is in the expression cache, written in one update; a terminal shows progress
meanwhile.
"""

from __future__ import annotations

import time
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Column, Table

import mzsql
from mzsql.adapter.environment.startup import PHASES, Startup
from mzsql.repr.errors import NotReadable

_LOOK_SECONDS = 0.2


def open_environment(env: Path, *, profile: bool, timeout: float) -> None:
    """Open an environment, wait, report and close it.

    Args:
        env: the environment's directory.
        profile: whether to report the time of each phase.
        timeout: the seconds to wait.

    Raises:
        NotReadable: not everything was taken up within ``timeout`` seconds.
    """
    with mzsql.connect(env) as con:
        startup = con.coordinator.env.startup
        if not _waited(startup, timeout):
            raise NotReadable(
                f"within {timeout:g} s {_progress(startup)}",
                hint="What was taken up goes on where another process leads; give a longer --timeout.",
            )
        took = startup.objects("taking up")
        made = startup.objects("optimization")
        typer.echo(f"{took} dataflows taken up, {made} of them optimized anew")
        if profile:
            _print(startup)


def _waited(startup: Startup, timeout: float) -> bool:
    end = time.monotonic() + timeout
    columns = (
        TextColumn("dataflows"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("taken up, {task.fields[made]} optimized"),
        TimeElapsedColumn(),
    )
    shown = Console(stderr=True)
    with Progress(*columns, console=shown, transient=True, disable=not shown.is_terminal) as bar:
        task = bar.add_task("dataflows", total=None, made=0)
        while not startup.wait(min(_LOOK_SECONDS, max(0.0, end - time.monotonic()))):
            if time.monotonic() >= end:
                return False
            took, made = startup.objects("taking up"), startup.objects("optimization")
            bar.update(task, completed=took, total=startup.wanted or None, made=made)
    return True


def _progress(startup: Startup) -> str:
    took, made = startup.objects("taking up"), startup.objects("optimization")
    return f"{took} of {startup.wanted} dataflows taken up, {made} optimized"


def _print(startup: Startup) -> None:
    table = Table(Column("phase", no_wrap=True), "began s", "seconds", "objects", "what is done")
    for one in startup.phases():
        took = f"{one.began:.3f}", f"{one.seconds:.3f}", str(one.objects or "")
        table.add_row(one.name, *took, PHASES[one.name])
    Console().print(table)
