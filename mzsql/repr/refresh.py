"""When a materialized view with REFRESH AT or REFRESH EVERY is refreshed.

Promise: pure functions over a schedule. A view that has one holds at a time what its query was at the last refresh at or before it; so a
change of its inputs takes effect at the next refresh (`round_up`), and its upper goes from refresh to refresh. After the last one it is
complete for ever. A refresh whose time its inputs can no longer be read at is left out: it holds then what it did before, until the next.
"""

from __future__ import annotations

import msgspec

from mzsql.repr.frontier import MAX_TIMESTAMP, MIN_TIMESTAMP, Frontier, Timestamp


class OnRefresh(msgspec.Struct, frozen=True, omit_defaults=True):
    """SCHEDULE = ON REFRESH of a cluster: it has a replica while a view in it is to be refreshed, and so many milliseconds before."""

    hydration_ms: int = 0


class RefreshEvery(msgspec.Struct, frozen=True):
    """REFRESH EVERY: at `aligned_to` and each so many milliseconds before and after it."""

    interval_ms: int
    aligned_to: Timestamp


class RefreshSchedule(msgspec.Struct, frozen=True, omit_defaults=True):
    """All refreshes of a view: those of each REFRESH EVERY, and the times of REFRESH AT."""

    everies: tuple[RefreshEvery, ...] = ()
    ats: tuple[Timestamp, ...] = ()

    def round_up(self, time: Timestamp) -> Frontier:
        """The first refresh at or after a time; None where there is none."""
        found = [time + (one.aligned_to - time) % one.interval_ms for one in self.everies]
        found += [at for at in self.ats if at >= time]
        return min((one for one in found if one <= MAX_TIMESTAMP), default=None)

    def last_before(self, time: Timestamp) -> Timestamp | None:
        """The last refresh before a time; None where there is none."""
        found = [time - 1 - (time - 1 - one.aligned_to) % one.interval_ms for one in self.everies]
        found += [at for at in self.ats if at < time]
        return max((one for one in found if one >= MIN_TIMESTAMP), default=None)

    def done(self, upper: Frontier) -> Frontier:
        """How much of its inputs a view has taken in whose upper, or whose inputs' upper, this is: all up to the last refresh before it."""
        if upper is None:
            return None
        last = self.last_before(upper)
        return MIN_TIMESTAMP if last is None else last + 1

    @property
    def last(self) -> Frontier:
        """The last of all refreshes; None where they never end."""
        return None if self.everies else max(self.ats, default=None)


def done(refresh: RefreshSchedule | None, upper: Frontier) -> Frontier:
    """As `RefreshSchedule.done`, of any view; one without a schedule has taken in all below its upper."""
    return upper if refresh is None else refresh.done(upper)
