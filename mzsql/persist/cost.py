"""What a shard costs on S3: storage by its bytes, requests by the activity in its log.

Promise: pure arithmetic over numbers that the report also shows, with every assumption listed with the result.
Prices are those of S3 Standard in most regions; Consensus is billed by its own database and not counted. Source:
Materialize's persist design, "Costs".
"""

from __future__ import annotations

import msgspec

GIB = 1 << 30
MONTH_SECONDS = 365.25 / 12 * 24 * 3600


class Prices(msgspec.Struct, frozen=True, kw_only=True):
    """Prices in US dollars."""

    gib_month: float = 0.023
    """A GiB stored for a month."""
    put: float = 0.005 / 1000
    """A PUT, LIST or DELETE request."""
    get: float = 0.0004 / 1000
    """A GET request."""


class Activity(msgspec.Struct, frozen=True, kw_only=True):
    """What the entries of a shard's log did after the first of them, which was committed ``seconds`` ago."""

    seconds: float = 0.0
    changes: int = 0
    appends: int = 0
    updates_appended: int = 0
    inline_bytes_appended: int = 0
    merges: int = 0
    rollups: int = 0
    objects_appended: int = 0
    objects_written: int = 0
    """By appends, by compactions and as rollups."""
    objects_compacted: int = 0
    """Read by compactions."""
    objects_dropped: int = 0
    """Deleted, or to be deleted by garbage collection."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """US dollars per month, if the shard continues as in its log."""

    stored_bytes: int
    puts_per_month: float
    gets_per_month: float
    storage_usd: float
    puts_usd: float
    gets_usd: float
    total_usd: float
    reliable: bool
    """Whether the log is long enough for an estimate of a month."""
    assumptions: tuple[str, ...]


def monthly_cost(
    stored_bytes: int, activity: Activity, readers: int, prices: Prices | None = None
) -> Cost:
    """Return the cost of a shard that has ``stored_bytes`` in Blob and is followed by ``readers``."""
    prices = Prices() if prices is None else prices
    months = activity.seconds / MONTH_SECONDS
    puts = activity.objects_written + activity.objects_dropped
    gets = activity.objects_compacted + activity.objects_appended * readers
    puts_per_month = puts / months if months > 0 else 0.0
    gets_per_month = gets / months if months > 0 else 0.0
    storage_usd = stored_bytes / GIB * prices.gib_month
    puts_usd, gets_usd = puts_per_month * prices.put, gets_per_month * prices.get
    return Cost(
        stored_bytes=stored_bytes,
        puts_per_month=puts_per_month,
        gets_per_month=gets_per_month,
        storage_usd=storage_usd,
        puts_usd=puts_usd,
        gets_usd=gets_usd,
        total_usd=storage_usd + puts_usd + gets_usd,
        reliable=_reliable(activity),
        assumptions=_assumptions(activity, readers, prices),
    )


def _reliable(activity: Activity) -> bool:
    return activity.seconds >= 600


def _assumptions(activity: Activity, readers: int, prices: Prices) -> tuple[str, ...]:
    told = [
        f"S3 Standard: ${prices.gib_month:g} a GiB-month, ${prices.put * 1000:g} per 1,000 PUT, LIST or DELETE, "
        f"${prices.get * 1000:g} per 1,000 GET; Consensus is not counted",
        "stored are live batches, garbage, rollups and unreferenced objects, at their present size",
        f"requests go on as in the last {span(activity.seconds)}, in which the log has {activity.changes} changes: "
        f"{activity.objects_written} objects written, {activity.objects_dropped} dropped, "
        f"{activity.objects_compacted} read by compaction",
        f"every reader that is open now (there are {readers}) reads each appended object once; "
        "snapshots, and what Spark reads by path, come on top",
    ]
    if not _reliable(activity):
        told.append("so short a log says little about a month: look again later")
    return tuple(told)


def span(seconds: float) -> str:
    """Return a duration as text for people."""
    for unit, length in (("days", 86_400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.1f} {unit}"
    return f"{seconds:.0f} seconds"


def hundred_dollars_a_year(prices: Prices | None = None) -> str:
    """Return what $100 a year buys of each alone, to put a cost into proportion."""
    prices = Prices() if prices is None else prices
    gib = 100 / 12 / prices.gib_month
    puts, gets = 100 / prices.put, 100 / prices.get
    year = MONTH_SECONDS * 12
    return (
        f"$100 a year buys {gib:.0f} GiB stored, or {puts / 1e6:.0f} million PUT/LIST/DELETE "
        f"({puts / year:.2f} a second), or {gets / 1e6:.0f} million GET ({gets / year:.1f} a second)"
    )
