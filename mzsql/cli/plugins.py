"""``mzsql plugins``: the installed plugins, what they serve, whether they pass the kit; and the kit run on a URL.

Promise: a broken plugin is a row like any other. The kit ends: a case that exceeds its time limit is named, earlier results are reported,
and the command fails. URLs are shown without secrets. Standard output is the command's alone: what plugins print goes to standard error.
"""

from __future__ import annotations

import contextlib
import shlex
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import IO, Any, Literal, cast, get_args

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mzsql.cli.kit_records import Record, find, keep
from mzsql.cli.kit_watch import Watch
from mzsql.cli.output import error_lines
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
        Unsupported: its requirements are not installed.
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
    """The kit's result for a scheme and kind: ``passed``, ``failed``, ``not run`` or ``out of date``, and the record, if any."""

    scheme: str
    kind: str
    state: str
    record: Record | None = None

    @property
    def text(self) -> str:
        """The text in the table."""
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
    """A plugin, as in ``mzsql plugins --json``."""

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
    """All installed plugins, working or not."""
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
    """The result of the latest run of the kit for this version of a plugin.

    Args:
        one: the plugin.
        scheme: the scheme.
        kind: the kind of backend.
        kit_version: the kit's version; None where the kit is not installed.
    """
    record = find(one.distribution, scheme, kind)
    if record is None:
        return KitState(scheme, kind, "not run")
    current = record.version == one.version and kit_version in (None, record.kit_version)
    if not current:
        return KitState(scheme, kind, "out of date", record)
    return KitState(scheme, kind, "failed" if record.failed else "passed", record)


class Contested(msgspec.Struct, frozen=True):
    """Plugins that claim the same scheme; none of them is opened."""

    kind: str
    scheme: str
    plugins: tuple[str, ...]

    @property
    def text(self) -> str:
        """The line below the table."""
        names = ", ".join(self.plugins)
        return f"{self.scheme}: is served as {self.kind} by {names}: none is opened, uninstall all but one"


def contested(rows: Sequence[Row]) -> list[Contested]:
    """The schemes that several plugins claim."""
    names: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for kind, scheme in dict.fromkeys((s.kind, x) for s in row.serves for x in s.schemes):
            names.setdefault((kind, scheme), []).append(row.name)
    return [Contested(*key, tuple(each)) for key, each in names.items() if len(each) > 1]


@contextlib.contextmanager
def _output() -> Iterator[IO[str]]:
    """Standard output, while what plugins or libraries print goes to standard error."""
    out = sys.stdout
    with contextlib.redirect_stdout(sys.stderr):
        yield out


def list_plugins(style: str) -> None:
    """Print all plugins as a table or as JSON."""
    with _output() as out:
        _list(style, out)


def _list(style: str, out: IO[str]) -> None:
    rows = plugin_rows()
    clashes = contested(rows)
    if style == "json":
        told = {
            "mzsql": VERSION,
            "hooks_version": HOOKS_VERSION,
            "plugins": rows,
            "contested": clashes,
        }
        _write_json(told, out)
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("PLUGIN", "DISTRIBUTION", "STATE", "HOOKS", "KIND", "URL", "KIT"):
        table.add_column(name, overflow="fold")
    for row in rows:
        for cells in _cells(row):
            # `Text`, because brackets in a URL's form would be parsed as markup.
            table.add_row(*[Text(cell) for cell in cells])
    console = _console(out)
    console.print(table)
    for row in rows:
        notes = [*([row.reason] if row.reason else []), *row.deprecated]
        for note in notes:
            console.print(Text(f"\n{row.name}: {note}"), soft_wrap=True)
    for clash in clashes:
        console.print(Text(f"\n{clash.text}"), soft_wrap=True)


def _write_json(value: object, out: IO[str]) -> None:
    out.write(msgspec.json.format(msgspec.json.encode(value)).decode() + "\n")


def _console(out: IO[str]) -> Console:
    return Console(file=out, width=None if out.isatty() else _PIPE_WIDTH)


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
    """How to run the kit."""

    full: bool = False
    seed: int = 0
    only: tuple[str, ...] = ()
    cases: tuple[str, ...] = ()
    speed: bool = True
    timeout: float = 600.0


def test_url(place: str, wanted: Wanted, style: str) -> int:
    """Run the kit on a URL, or on those of a profile (``profile:NAME``), and report.

    Args:
        place: the URL or profile.
        wanted: how to run it.
        style: the format of the report.

    Returns:
        The exit code: 0 if all passed, 1 if a case failed, 2 if nothing can be opened.
    """
    kit = load_kit()
    with _output() as out:
        return _tested(kit, place, wanted, style, out)


def _tested(kit: ModuleType, place: str, wanted: Wanted, style: str, out: IO[str]) -> int:
    runs: list[tuple[Any, Any]] = []
    progress = out if style != "json" else None

    def tell(report: Any) -> None:
        if not wanted.cases:
            _remember(report)
        if progress is not None:
            _tell(report, place, wanted, progress)

    def hung(report: Any) -> None:
        tell(report)
        if progress is None:
            _tell_json([*runs, (report, None)], out, passed=False)

    try:
        for url, kinds in _targets(place, wanted.only):
            report = _run(kit, url, kinds, wanted, progress, hung)
            tell(report)
            sheet = _measured(url, report.kinds, wanted) if _is_measured(report, wanted) else None
            if sheet is not None and progress is not None:
                _console(out).print(sheet.table())
            runs.append((report, sheet))
    except SqlError as refused:
        sys.stderr.write(error_lines(refused))
        return BAD_URL
    good = all(_good(report, wanted) for report, _ in runs)
    if progress is None:
        _tell_json(runs, out, passed=good)
    return 0 if good else _FAILED


def _tell_json(runs: list[tuple[Any, Any]], out: IO[str], *, passed: bool) -> None:
    told = [
        {**msgspec.to_builtins(report), "speed": [] if sheet is None else sheet.rows}
        for report, sheet in runs
    ]
    _write_json({"passed": passed, "runs": told}, out)


def _targets(place: str, only: tuple[str, ...]) -> list[tuple[str, tuple[str, ...]]]:
    """The URLs to open with the kinds to test; no kinds means all that the URL serves.

    Raises:
        InvalidUrl: there is no such profile.
        UsageError: the profile has none of the requested kinds.
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
    """Whether the run is a success; a complete run needs a case of each kind that was not skipped."""
    return not report.failed if wanted.cases else bool(report.passed)


def check_all(style: str) -> int:
    """Run the quick kit on each plugin that names a scratch URL, keep the results, and list the plugins.

    Args:
        style: the format of the list.

    Returns:
        The exit code.
    """
    kit = load_kit()
    with _output():
        good = _all_checked(kit)
    list_plugins(style)
    return 0 if good else _FAILED


def _all_checked(kit: ModuleType) -> bool:
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
    return good


def _checked(kit: ModuleType, one: Installed, kind: Kind, place: str) -> bool:
    """Run the quick kit on the scratch URL of a plugin.

    Returns:
        Whether all is well.
    """
    url = default_registry().scratch_url(one.name, kind, place)
    if url is None:
        return True
    sys.stderr.write(f"{one.name} {kind} ...\n")
    report = _run(kit, url, (kind,), Wanted(), None, _remember)
    _remember(report)
    for failed in report.failed:
        sys.stderr.write(f"{one.name}: {failed.kind}.{failed.name} failed\n")
    return bool(report.passed)


def _is_measured(report: Any, wanted: Wanted) -> bool:
    """Whether to measure speed: only after a complete run that passed."""
    return wanted.speed and not wanted.cases and bool(report.passed)


def _measured(url: str, kinds: tuple[str, ...], wanted: Wanted) -> Any:
    from mzsql.testing.speed import measure_speed  # noqa: PLC0415  loaded with the kit

    level: Literal["quick", "full"] = "full" if wanted.full else "quick"
    seconds = wanted.timeout * (10 if wanted.full else 1)
    with Watch(seconds, shown_url(url)) as watch:
        watch.begun("the speed sheet")
        return measure_speed(url, kinds=cast("tuple[Kind, ...]", kinds), level=level)


def _run(
    kit: ModuleType,
    url: str,
    kinds: tuple[str, ...],
    wanted: Wanted,
    progress: IO[str] | None,
    hung: Callable[[Any], None],
) -> Any:
    """Run the kit.

    Args:
        kit: the kit.
        url: the backend.
        kinds: the kinds to test; all that the URL serves by default.
        wanted: how to run it.
        progress: where to print progress.
        hung: called with the report when a case does not end, just before the process ends.
    """
    level = "full" if wanted.full else "quick"
    results: list[Any] = []
    running: list[tuple[str, Any]] = []

    def begun(kind: str, case: Any) -> None:
        running.append((kind, case))
        watch.begun(f"{kind}.{case.name}")

    def told(result: Any) -> None:
        results.append(result)
        if progress is not None:
            reason = f": {result.message}" if result.outcome == "skipped" else ""
            name = f"{result.kind}.{result.name}"
            progress.write(f"{result.outcome:7} {name:34} {result.seconds:6.1f} s{reason}\n")
            progress.flush()

    def gave_up(_: str) -> None:
        if not running:
            return  # it was not even opened
        kind, case = running[-1]
        why = f"did not end within {wanted.timeout:g} seconds"
        last = kit.CaseResult(kind, case.name, case.text, "failed", wanted.timeout, why)
        found = (*results, last)
        tried = tuple(dict.fromkeys(each.kind for each in found))
        shown = shown_url(url)
        hung(kit.KitReport(kit.KIT_VERSION, shown, level, wanted.seed, tried, found))

    with Watch(wanted.timeout, shown_url(url), gave_up) as watch:
        return kit.run_kit(
            url,
            kinds=kinds or None,
            level=level,
            seed=wanted.seed,
            cases=wanted.cases or None,
            on_begin=begun,
            on_case=told,
        )


def _remember(report: Any) -> None:
    """Keep the results for each kind, under the plugin that claims the scheme."""
    scheme = split_url(report.url).scheme
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


def _tell(report: Any, place: str, wanted: Wanted, out: IO[str]) -> None:
    for one in report.failed:
        out.write(f"\nFAILED {one.kind}.{one.name}: {one.text}\n")
        # The message's last line is about Python; this is a command line.
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
