"""What a location stores: a table of all shards with the monthly cost of each, or one shard in detail.

Promise: nothing is written and no lease is taken. JSON has everything in the tables, complete; the tables shorten long
lists and say so. The table of all shards begins with the most important columns, as many as fit the terminal, or all in
a pipe. An unreadable shard is shown with its error, and makes the command fail at the end.
"""

from __future__ import annotations

import datetime as dt
import shutil
import sys
from collections.abc import Sequence
from typing import Any

import msgspec

from mzsql.cli.output import print_csv, print_table, text_of
from mzsql.cli.place import Place
from mzsql.persist.cost import hundred_dollars_a_year, span
from mzsql.persist.shard_reports import HandleReport, OrphansReport, ShardReport
from mzsql.repr.errors import SqlError
from mzsql.repr.frontier import show

_SHOWN = 20
"""The number of lines printed of a list; JSON has all."""

_COLUMNS = (
    "owner",
    "shard",
    "since",
    "upper",
    "batches",
    "parts",
    "updates",
    "bytes",
    "inline_bytes",
    "garbage_bytes",
    "unreferenced_bytes",
    "readers",
    "writers",
    "holds",
    "seqno",
    "usd_a_month",
)
_NOT_SUMMED = ("owner", "shard", "since", "upper", "seqno")
_OF_AN_ENVIRONMENT = (
    *("owner", "bytes", "usd_a_month", "garbage_bytes", "batches", "since", "upper"),
    *("readers", "writers", "holds", "shard", "unreferenced_bytes"),
    *("inline_bytes", "parts", "updates", "seqno"),
)
"""The order of the columns: the first fit a terminal of 80 columns, and name the arguments of --shard."""
_OF_A_LOCATION = (
    "shard",
    *(name for name in _OF_AN_ENVIRONMENT if name not in ("shard", "owner")),
    "owner",
)
_OWNER_SHOWN = 30
"""The number of characters of an owner shown on a terminal."""


class Overview(msgspec.Struct, frozen=True, kw_only=True):
    """All shards of a location, as in the JSON output."""

    shards: list[ShardReport]
    owners: dict[str, str]
    of_no_shard: list[OrphansReport]
    failures: dict[str, str]
    total_bytes: int
    total_usd_a_month: float


class Detail(msgspec.Struct, frozen=True, kw_only=True):
    """One shard, as in the JSON output."""

    owner: str
    report: ShardReport


def usd(amount: float) -> str:
    """An amount in dollars, with enough digits to distinguish a small one from zero."""
    return f"{amount:.2f}" if amount == 0 or amount >= 0.01 else f"{amount:.2g}"


def _row(report: ShardReport, owner: str) -> list[Any]:
    return [
        owner,
        report.shard_id,
        show(report.since),
        show(report.upper),
        len(report.batches),
        sum(batch.parts for batch in report.batches),
        report.updates,
        sum(batch.bytes for batch in report.batches),
        report.inline_bytes,
        report.garbage_bytes,
        report.unreferenced_bytes,
        len(report.readers),
        len(report.writers),
        len(report.critical),
        report.seqno,
        report.cost.total_usd,
    ]


def _stored(report: ShardReport) -> int:
    return report.cost.stored_bytes + report.inline_bytes


def print_overview(place: Place, style: str) -> int:
    """Print all shards, largest first, with totals; ended shards only if they still cost something.

    Args:
        place: the location.
        style: the format.

    Returns:
        The exit code.
    """
    owners = place.owners()
    shards: list[ShardReport] = []
    failures: dict[str, str] = {}
    hints: list[str] = []
    for shard_id, found in place.client.reports():
        if isinstance(found, ShardReport):
            if not found.finalized or found.cost.stored_bytes:
                shards.append(found)
        else:
            failures[shard_id] = found.message if isinstance(found, SqlError) else repr(found)
            hints.append(getattr(found, "hint", None) or "")
    orphans = place.client.orphans()
    shards.sort(key=lambda r: (-_stored(r), owners.get(r.shard_id, ""), r.shard_id))
    if style == "json":
        _print_json(
            Overview(
                shards=shards,
                owners=owners,
                of_no_shard=orphans,
                failures=failures,
                total_bytes=sum(map(_stored, shards)) + sum(s.bytes for s in orphans),
                total_usd_a_month=sum(r.cost.total_usd for r in shards),
            )
        )
    else:
        _print_rows(shards, owners, style)
        if style == "table":
            _print_rest(orphans)
    for (shard_id, error), hint in zip(failures.items(), hints, strict=True):
        sys.stderr.write(failure_lines(shard_id, error, hint))
    return 1 if failures else 0


def _print_rows(shards: Sequence[ShardReport], owners: dict[str, str], style: str) -> None:
    rows = [
        _row(r, owners.get(r.shard_id) or (r.purpose if not owners else "nobody the catalog knows"))
        for r in shards
    ]
    if style == "csv":
        print_csv(_COLUMNS, rows, sys.stdout)
        return
    total: list[Any] = [
        None if name in _NOT_SUMMED else sum(row[i] for row in rows)
        for i, name in enumerate(_COLUMNS)
    ]
    total[0] = "total"
    told = [usd(r.cost.total_usd) + ("" if r.cost.reliable else " ?") for r in shards]
    told.append(usd(total[-1]))
    shown = [
        dict(zip(_COLUMNS, [*row[:-1], cost], strict=True))
        for row, cost in zip([*rows, total], told, strict=True)
    ]
    names = _OF_AN_ENVIRONMENT if owners else _OF_A_LOCATION
    if not owners:
        shown[-1]["shard"], shown[-1]["owner"] = "total", None
    _print_fitting(names, [[row[name] for name in names] for row in shown])


def _shortened(owner: str) -> str:
    """The end of the owner, which tells objects apart."""
    return owner if len(owner) <= _OWNER_SHOWN else f"…{owner[1 - _OWNER_SHOWN :]}"


def _print_fitting(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    """Print the columns that fit the terminal, or all in a pipe; the last row is the total."""
    count = len(names)
    if sys.stdout.isatty():
        rows = [
            [
                _shortened(value) if name == "owner" and value else value
                for name, value in zip(names, row, strict=True)
            ]
            for row in rows
        ]
        room = shutil.get_terminal_size().columns
        widths = [
            max(len(name), *(len(text_of(row[i])) for row in rows)) + 3
            for i, name in enumerate(names)
        ]
        count = max(1, sum(sum(widths[: i + 1]) <= room + 1 for i in range(len(names))))
    shards = len(rows) - 1
    footer = f"({shards} shard{'' if shards == 1 else 's'})"
    print_table(names[:count], [row[:count] for row in rows], sys.stdout, footer=footer)
    if count < len(names):
        sys.stdout.write(
            f"A wider terminal, --csv and --json have more: {', '.join(names[count:])}.\n"
        )


def failure_lines(shard_id: str, error: str, hint: str) -> str:
    """Why a shard could not be read or maintained, in the format of PostgreSQL's tools, with the shard named once."""
    where = "" if shard_id in error else f"{shard_id}: "
    return f"ERROR:  {where}{error}\n" + (f"HINT:  {hint}\n" if hint else "")


def _print_rest(orphans: Sequence[OrphansReport]) -> None:
    if orphans:
        sys.stdout.write("objects of no shard of this Consensus:\n")
        rows = [(s.prefix, s.objects, s.bytes) for s in orphans[:_SHOWN]]
        print_table(("prefix", "objects", "bytes"), rows, sys.stdout)
        _print_left_out(len(orphans))
    sys.stdout.write(
        "usd_a_month is extrapolated from each shard's log (?: from less than ten minutes of it); "
        "--shard tells with which assumptions.\n"
        f"{hundred_dollars_a_year()}.\n"
    )


def _print_left_out(count: int) -> None:
    if count > _SHOWN:
        sys.stdout.write(f"… and {count - _SHOWN} more, see --json\n\n")


def _print_json(value: object) -> None:
    sys.stdout.write(msgspec.json.format(msgspec.json.encode(value), indent=2).decode() + "\n")


def print_shard(place: Place, shard_id: str, style: str) -> int:
    """Print a shard in detail.

    Args:
        place: the location.
        shard_id: the shard.
        style: the format.

    Returns:
        The exit code: 1 if objects that it references are missing.
    """
    report = place.client.report(shard_id)
    assert report is not None, "the shard was found in Consensus"
    owner = place.owners().get(shard_id, report.purpose)
    if style == "json":
        _print_json(Detail(owner=owner, report=report))
    else:
        _print_facts(report, owner)
        _print_lists(report)
        _print_cost(report)
    if report.missing:
        sys.stderr.write(
            f"ERROR:  {len(report.missing)} objects that the shard's state names are missing from Blob: "
            f"{', '.join(report.missing[:3])}{', …' if len(report.missing) > 3 else ''}\n"
        )
    return 1 if report.missing else 0


def _print_facts(report: ShardReport, owner: str) -> None:
    log = report.log
    key = report.key
    facts = {
        "shard": report.shard_id,
        "owner": owner,
        "state": _state(report),
        "since": f"{show(report.since)}{_held_by(report)}",
        "upper": show(report.upper),
        "seqno": f"{report.seqno}, objects kept for states from {report.seqno_since} on",
        "last change": _moment(report.walltime_ms),
        "written by": f"mzsql {report.applier_version}" if report.applier_version else "",
        "columns": ", ".join(f"{name} {kind}" for name, kind in report.columns.items()),
        "key": "" if key is None else f"({', '.join(key.columns)}) in {key.workers} workers",
        "updates": str(report.updates),
        "bytes": f"{report.live_bytes} in objects, {report.inline_bytes} inline, {report.garbage_bytes} garbage, "
        f"{report.rollup_bytes} rollups, {report.unreferenced_bytes} unreferenced",
        "log": f"{log.entries} entries, {log.bytes} bytes, from {log.first_seqno} to {log.last_seqno}",
    }
    width = max(map(len, facts))
    for name, fact in facts.items():
        if fact:
            sys.stdout.write(f"{name.ljust(width)}  {fact}\n")
    sys.stdout.write("\n")


def _state(report: ShardReport) -> str:
    if report.finalized:
        return "finalized: a tombstone"
    if not report.ending:
        return "live"
    left = len(report.readers) + len(report.critical)
    held = f"the last of {left}" if left else "the next look at it"
    return f"ending: retired, takes no new readers, and ends with {held}"


def _held_by(report: ShardReport) -> str:
    """The handles that hold since where it is."""
    held = [f"reader {r.id}" for r in report.readers if r.frontier == report.since]
    held += [f"hold {h.id}" for h in report.critical if h.frontier == report.since]
    if report.since is None:
        return ""
    if not held:
        return ", held back by nobody: it moves when a reader or hold does"
    more = f" and {len(held) - 3} more" if len(held) > 3 else ""
    return f", held back by {', '.join(held[:3])}{more}"


def _moment(ms: int) -> str:
    return dt.datetime.fromtimestamp(ms / 1000, dt.UTC).isoformat(sep=" ", timespec="milliseconds")


def _left(handle: HandleReport) -> str:
    if handle.lease_left_ms is None:
        return ""
    if handle.lease_left_ms < 0:
        return f"ran out {span(-handle.lease_left_ms / 1000)} ago"
    return span(handle.lease_left_ms / 1000)


def _print_lists(report: ShardReport) -> None:
    _print_list(
        "batches",
        (
            "id",
            "lower",
            "upper",
            "since",
            "updates",
            "bytes",
            "parts",
            "inline",
            "objects",
            "workers",
        ),
        [
            (
                *(b.id, b.lower, show(b.upper), b.since, b.updates, b.bytes, b.parts),
                *(b.inline_bytes, b.objects, ",".join(map(str, b.workers))),
            )
            for b in report.batches
        ],
    )
    _print_list(
        "readers",
        ("id", "since", "lease left", "reads from seqno", "purpose"),
        [(r.id, show(r.frontier), _left(r), r.seqno_hold, r.purpose) for r in report.readers],
    )
    _print_list(
        "writers",
        ("id", "upper", "lease left", "purpose"),
        [(w.id, show(w.frontier), _left(w), w.purpose) for w in report.writers],
    )
    _print_list(
        "critical holds",
        ("id", "since", "purpose"),
        [(h.id, show(h.frontier), h.purpose) for h in report.critical],
    )
    _print_list(
        "expired, as their leases ran out",
        ("id", "kind", "at seqno", "not renewed for", "purpose"),
        [(e.id, e.kind, e.seqno, span(e.unseen_ms / 1000), e.purpose) for e in report.expired],
    )
    _print_list(
        "rollups",
        ("seqno", "key", "bytes"),
        [(r.seqno, r.key, r.bytes) for r in report.rollups],
    )
    _print_list(
        "garbage",
        ("since seqno", "objects", "bytes", "held by"),
        [
            (g.seqno, g.objects, g.bytes, ", ".join(g.held_by) or "nobody: goes with a collection")
            for g in report.garbage
        ],
    )
    _print_list(
        "unreferenced objects (being written, to be appended, or leaked)",
        ("key", "bytes", "age"),
        [
            (u.key, u.bytes, "unknown" if u.age_ms is None else span(u.age_ms / 1000))
            for u in report.unreferenced
        ],
    )


def _print_list(what: str, names: Sequence[str], rows: Sequence[Sequence[Any]]) -> None:
    if not rows:
        return
    sys.stdout.write(f"{what}:\n")
    print_table(names, rows[:_SHOWN], sys.stdout)
    _print_left_out(len(rows))


def _print_cost(report: ShardReport) -> None:
    cost = report.cost
    doubt = "" if cost.reliable else f" ?, by {span(report.log.activity.seconds)} of log"
    sys.stdout.write(f"cost a month: ${usd(cost.total_usd)}{doubt}\n")
    rows = [
        ("stored", f"{cost.stored_bytes} bytes", usd(cost.storage_usd)),
        ("PUT, LIST, DELETE", f"{cost.puts_per_month:.0f} requests", usd(cost.puts_usd)),
        ("GET", f"{cost.gets_per_month:.0f} requests", usd(cost.gets_usd)),
    ]
    print_table(("what", "how much", "usd"), rows, sys.stdout)
    for assumption in cost.assumptions:
        sys.stdout.write(f"- {assumption}\n")
    sys.stdout.write(f"- {hundred_dollars_a_year()}\n")
