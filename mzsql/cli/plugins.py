"""``mzsql plugins``: what is installed, what it serves, whether it passes its kit; and the kit itself, run on a URL.

Promise: a broken plugin is a row like any other. The kit ends: a case that takes longer than its limit is named and the command fails.
No URL is shown with its secrets.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, Literal, cast, get_args

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mzsql.cli.kit_records import Record, find, keep
from mzsql.location import (
    HOOKS_VERSION,
    Installed,
    Serves,
    UsageError,
    default_registry,
    shown_url,
    split_url,
)
from mzsql.location.hookspecs import Kind
from mzsql.location.profiles import SCHEME as PROFILE
from mzsql.location.profiles import profile
from mzsql.repr.errors import SqlError, Unsupported
from mzsql.repr.version import VERSION

_PIPE_WIDTH = 160
_FAILED = 1
BAD_URL = 2


def load_kit() -> ModuleType:
    """The module `mzsql.testing.kit`.

    Raises:
        Unsupported: what it needs is not installed.
    """
    try:
        from mzsql.testing import kit  # noqa: PLC0415  it needs packages that only testers install
    except ImportError as missing:
        raise Unsupported(
            f"the kit cannot be loaded: {missing}", hint="pip install 'mzsql[testing]'"
        ) from missing
    return kit


def _kit_version() -> int | None:
    try:
        version: int = load_kit().KIT_VERSION
    except Unsupported:
        return None
    return version


class KitState(msgspec.Struct, frozen=True):
    """What the kit says of one scheme of one kind: ``passed``, ``failed``, ``not run`` or ``out of date``; and the record, if any."""

    scheme: str
    kind: str
    state: str
    record: Record | None = None

    @property
    def text(self) -> str:
        """For the table."""
        if self.record is None:
            return self.state
        day = time.strftime("%Y-%m-%d", time.localtime(self.record.ended_ms / 1000))
        if self.state == "out of date":
            made = f"{self.record.version}, kit {self.record.kit_version}"
            return f"out of date (of {made}, {day})"
        failed = len(self.record.failed)
        of = f" {failed} of {failed + self.record.passed}" if failed else ""
        return f"{self.state}{of} ({self.record.level}, {day})"


class Row(msgspec.Struct, frozen=True):
    """One plugin, as ``mzsql plugins --json`` has it."""

    name: str
    distribution: str
    version: str
    state: str
    reason: str | None
    hooks_version: int
    deprecated: tuple[str, ...]
    serves: tuple[Serves, ...]
    kit: tuple[KitState, ...]


def plugin_rows() -> list[Row]:
    """Every plugin installed, sound or not."""
    version = _kit_version()
    rows = []
    for one in default_registry().installed:
        states = tuple(
            kit_state(one, scheme, serves.kind, version)
            for serves in one.serves
            for scheme in serves.schemes
        )
        rows.append(
            Row(
                one.name,
                one.distribution,
                one.version,
                one.state,
                one.failure,
                one.hooks_version,
                one.deprecated,
                one.serves,
                states,
            )
        )
    return rows


def kit_state(one: Installed, scheme: str, kind: str, kit_version: int | None) -> KitState:
    """What the latest run of the kit says of this version of a plugin."""
    record = find(one.distribution, scheme, kind)
    if record is None:
        return KitState(scheme, kind, "not run")
    current = record.version == one.version and kit_version in (None, record.kit_version)
    if not current:
        return KitState(scheme, kind, "out of date", record)
    return KitState(scheme, kind, "failed" if record.failed else "passed", record)


def list_plugins(style: str) -> None:
    """Print every plugin as a table or as JSON."""
    rows = plugin_rows()
    if style == "json":
        told = {"mzsql": VERSION, "hooks_version": HOOKS_VERSION, "plugins": rows}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(told)).decode() + "\n")
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("PLUGIN", "DISTRIBUTION", "STATE", "HOOKS", "KIND", "URL", "KIT"):
        table.add_column(name, overflow="fold")
    for row in rows:
        for cells in _cells(row):
            # Texts, as a URL's form has brackets, which would be taken for markup.
            table.add_row(*[Text(cell) for cell in cells])
    console = _console()
    console.print(table)
    for row in rows:
        notes = [*([row.reason] if row.reason else []), *row.deprecated]
        for note in notes:
            console.print(Text(f"\n{row.name}: {note}"), soft_wrap=True)


def _console() -> Console:
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else _PIPE_WIDTH)


def _cells(row: Row) -> Iterator[tuple[str, ...]]:
    head = (
        row.name,
        f"{row.distribution} {row.version}".strip(),
        row.state,
        str(row.hooks_version),
    )
    if not row.serves:
        nothing = "does not say what it serves" if row.state == "loaded" else ""
        yield (*head, "", nothing, "")
    for serves in row.serves:
        states = [s for s in row.kit if s.kind == serves.kind and s.scheme in serves.schemes]
        texts = {s.scheme: s.text for s in states if s.state != "not run"}
        if len(serves.schemes) == 1:
            kit = next(iter(texts.values()), "not run")
        else:
            kit = "; ".join(f"{scheme}: {text}" for scheme, text in texts.items()) or "not run"
        yield (*head, serves.kind, serves.form, kit)
        head = ("", "", "", "")


class Wanted(msgspec.Struct, frozen=True, kw_only=True):
    """How the kit is to be run."""

    full: bool = False
    seed: int = 0
    only: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    speed: bool = True
    timeout: float = 600.0


def test_url(place: str, wanted: Wanted, style: str) -> int:
    """Run the kit on a URL, or on those of a profile (``profile:NAME``), and tell of it.

    Returns:
        The exit code: 0 when all passed, 1 when a case failed, 2 when there is nothing that can be opened.
    """
    kit = load_kit()
    runs: list[tuple[Any, Any]] = []
    try:
        for url, kinds in _targets(place, wanted.only):
            report = _run(kit, url, kinds, wanted, progress=style != "json")
            if not wanted.cases:
                _remember(report, url)
            if style != "json":
                _tell(report, place, wanted)
            sheet = _measured(url, report.kinds, wanted) if _is_measured(report, wanted) else None
            if sheet is not None and style != "json":
                _console().print(sheet.table())
            runs.append((report, sheet))
    except SqlError as refused:
        told = f"{refused.message}; {refused.hint}" if refused.hint else refused.message
        sys.stderr.write("ERROR:  " + " ".join(told.split("\n")) + "\n")
        return BAD_URL
    good = all(_good(report, wanted) for report, _ in runs)
    if style == "json":
        told_runs = [
            {**msgspec.to_builtins(report), "speed": [] if sheet is None else sheet.rows}
            for report, sheet in runs
        ]
        answer = {"passed": good, "runs": told_runs}
        sys.stdout.write(msgspec.json.format(msgspec.json.encode(answer)).decode() + "\n")
    return 0 if good else _FAILED


def _targets(place: str, only: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """What to open, as which kinds; none is whatever it serves.

    Raises:
        InvalidUrl: there is no such profile.
        UsageError: a profile has nothing of the kinds asked for.
    """
    if not place.startswith(PROFILE):
        return [(place, only)]
    found = profile(place.removeprefix(PROFILE))
    targets: dict[str, tuple[str, ...]] = {}
    for kind in get_args(Kind):
        url = getattr(found, kind)
        if url is not None and (not only or kind in only):
            targets[url] = (*targets.get(url, ()), kind)
    if not targets:
        raise UsageError(f"{place} names no URL of {' or '.join(only) or 'a backend'}")
    return list(targets.items())


def _good(report: Any, wanted: Wanted) -> bool:
    """Whether all is well; of a whole run that is also that each kind has a case that was not skipped."""
    return not report.failed if wanted.cases else bool(report.passed)


def check_all(style: str) -> int:
    """Run the quick kit on each plugin that names a scratch URL, keep what it finds, and list the plugins."""
    kit = load_kit()
    registry = default_registry()
    good = True
    with tempfile.TemporaryDirectory(prefix="mzsql-check-") as directory:
        for one in registry.installed:
            for kind in dict.fromkeys(serves.kind for serves in one.serves):
                place = Path(directory) / one.name / kind
                place.mkdir(parents=True)
                try:
                    good &= _checked(kit, one, kind, str(place))
                except SqlError as failure:  # of this plugin; the others are looked at all the same
                    sys.stderr.write(f"{one.name} {kind}: {failure.message}\n")
                    good = False
    code = 0 if good else _FAILED
    list_plugins(style)
    return code


def _checked(kit: ModuleType, one: Installed, kind: Kind, place: str) -> bool:
    """Run the quick kit where the plugin says it can be run with nothing set up; whether all is well."""
    url = default_registry().scratch_url(one.name, kind, place)
    if url is None:
        return True
    sys.stderr.write(f"{one.name} {kind} ...\n")
    report = _run(kit, url, (kind,), Wanted(), progress=False)
    _remember(report, url)
    for failed in report.failed:
        sys.stderr.write(f"{one.name}: {failed.kind}.{failed.name} failed\n")
    return bool(report.passed)


def _is_measured(report: Any, wanted: Wanted) -> bool:
    """Whether there is to be a speed sheet: how fast a wrong answer comes is of no interest."""
    return wanted.speed and not wanted.cases and bool(report.passed)


def _measured(url: str, kinds: tuple[str, ...], wanted: Wanted) -> Any:
    from mzsql.testing.speed import measure_speed  # noqa: PLC0415  loaded with the kit

    level: Literal["quick", "full"] = "full" if wanted.full else "quick"
    watch = _Watch(wanted.timeout * (10 if wanted.full else 1), shown_url(url))
    try:
        watch.ended("all cases")
        return measure_speed(url, kinds=cast("tuple[Kind, ...]", kinds), level=level)
    finally:
        watch.close()


def _run(
    kit: ModuleType, url: str, kinds: tuple[str, ...], wanted: Wanted, *, progress: bool
) -> Any:
    def told(result: Any) -> None:
        watch.ended(f"{result.kind}.{result.name}")
        if progress:
            reason = f": {result.message}" if result.outcome == "skipped" else ""
            name = f"{result.kind}.{result.name}"
            sys.stdout.write(f"{result.outcome:7} {name:34} {result.seconds:6.1f} s{reason}\n")
            sys.stdout.flush()

    watch = _Watch(wanted.timeout, shown_url(url))
    try:
        return kit.run_kit(
            url,
            kinds=kinds or None,
            level="full" if wanted.full else "quick",
            seed=wanted.seed,
            cases=wanted.cases or None,
            on_case=told,
        )
    finally:
        watch.close()


class _Watch:
    """Ends the process when no case has ended for so long: a backend that hangs cannot be interrupted from within."""

    def __init__(self, seconds: float, where: str, leave: Callable[[int], None] = os._exit) -> None:
        self._seconds = seconds
        self._where = where
        self._leave = leave
        self._last = "the beginning"
        self._event = threading.Event()
        self._closed = False
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def ended(self, name: str) -> None:
        """A case ended."""
        self._last = name
        self._event.set()

    def close(self) -> None:
        """All have."""
        self._closed = True
        self._event.set()
        self._thread.join()

    def _watch(self) -> None:
        while self._event.wait(self._seconds):
            self._event.clear()
            if self._closed:
                return
        sys.stderr.write(
            f"ERROR:  {self._where}: what comes after {self._last} did not end within {self._seconds:g} seconds\n"
        )
        sys.stderr.flush()
        self._leave(_FAILED)


def _remember(report: Any, url: str) -> None:
    """Keep what was found, for each kind, with the plugin that says it serves the scheme."""
    scheme = split_url(url).scheme
    for kind in report.kinds:
        for one in default_registry().installed:
            if not any(s.kind == kind and scheme in s.schemes for s in one.serves):
                continue
            results = [r for r in report.results if r.kind == kind]
            record = Record(
                distribution=one.distribution,
                version=one.version,
                scheme=scheme,
                kind=kind,
                kit_version=report.kit_version,
                mzsql_version=VERSION,
                url=report.url,
                level=report.level,
                seed=report.seed,
                ended_ms=time.time_ns() // 1_000_000,
                passed=sum(r.outcome == "passed" for r in results),
                skipped=sum(r.outcome == "skipped" for r in results),
                failed=tuple(r.name for r in results if r.outcome == "failed"),
            )
            try:
                keep(record)
            except OSError as failure:
                sys.stderr.write(f"WARNING:  the result is not kept: {failure}\n")


def _tell(report: Any, place: str, wanted: Wanted) -> None:
    out = sys.stdout
    for one in report.failed:
        out.write(f"\nFAILED {one.kind}.{one.name}: {one.text}\n")
        # The message's last line says how to do it in Python; here is a command line.
        lines = one.message.split("\n")
        lines = lines[:-1] if lines[-1].startswith("Run it again") else lines
        out.write("".join(f"    {line}\n" for line in lines))
        out.write(f"  again: {_again(place, f'{one.kind}.{one.name}', wanted)}\n")
    counts = {
        outcome: sum(r.outcome == outcome for r in report.results)
        for outcome in ("passed", "failed", "skipped")
    }
    said = ", ".join(f"{n} {outcome}" for outcome, n in counts.items())
    kinds = ", ".join(report.kinds)
    if not report.failed and not _good(report, wanted):
        out.write("\nOf some kind every case was skipped: that proves nothing.\n")
    out.write(f"\n{report.url} as {kinds}: {said} (kit {report.kit_version}, {report.level})\n")


def _again(place: str, case: str, wanted: Wanted) -> str:
    words: Sequence[str] = (
        "mzsql",
        "plugins",
        "test",
        shown_url(place),
        "--case",
        case,
        "--seed",
        str(wanted.seed),
        *(["--full"] if wanted.full else []),
    )
    return shlex.join(words)
