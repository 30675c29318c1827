"""A dataflow that is installed: its inputs, its arrangements and its export, opened.

Promise: `open_dataflow` finds what is there. A dataflow whose arrangements and export are all there and readable where they must be
goes on from the lowest of their uppers; else `missing` says which arrangements must be filled, at `as_of`: the latest time that the
inputs and the arrangements found can all be read at and that is not beyond what was asked for. An arrangement that cannot
be read there is not used. Of an export that is complete for ever nothing is filled, and nothing that it was made of is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import pyarrow as pa

from mzsql.compute.protocols import ComputeSettings, ExportLog, KnowsErrors, StorageReader
from mzsql.compute.replica.arrangement import Arrangement, ArrangementDesc
from mzsql.compute.replica.arrangements import Arrangements
from mzsql.compute.replica.endings import each_by_itself
from mzsql.compute.replica.fixpoints import Fixpoints
from mzsql.compute.replica.followed import Followed
from mzsql.compute.replica.inputs import Input
from mzsql.compute.replica.target import Target, no_updates
from mzsql.lir.sealed import SealedDataflow
from mzsql.persist import PersistClient
from mzsql.render.dataflow import RenderedDataflow, render
from mzsql.render.naming import index_fingerprint
from mzsql.render.rendered import ArrangementSpec, Outline
from mzsql.repr.errors import InternalError, NotReadable
from mzsql.repr.frontier import Frontier, Timestamp, join, less_than, meet
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.repr.refresh import RefreshSchedule, done
from mzsql.repr.types import arrow_schema

#: So many plans that were checked are remembered as rendered, until they run.
_KEPT = 4


#: What a recursion amounts to is kept for the next step up to so many rows.
_FIXPOINT_ROWS = 1_000_000


class DataflowSpec(msgspec.Struct, frozen=True):
    """What was asked for, as `compute.protocol.CreateDataflow` said."""

    gid: GlobalId
    name: str
    desc: SealedDataflow
    output_shard: str | None
    as_of: Timestamp
    #: of a view that is refreshed at some times only
    refresh: RefreshSchedule | None = None


def rendered_over(
    storage: KnowsErrors, desc: SealedDataflow, outline: Outline | None = None
) -> RenderedDataflow:
    """A dataflow rendered over its inputs as they are stored; with the outline of that, it is opened when its statements are needed.

    Raises:
        Unsupported: the plan cannot be maintained.
    """
    indexes = frozenset(desc.indexes)
    return render(
        desc,
        errors_in=lambda gid: gid in indexes or storage.has_errors(gid),
        outline=outline,
    )


class Renderings:
    """Dataflows rendered over their inputs as they are stored; one that was rendered lately, to see whether it can be maintained, is not
    rendered again. Thread-safe.
    """

    def __init__(self, storage: KnowsErrors) -> None:
        self._storage = storage
        self._lately: deque[RenderedDataflow] = deque(maxlen=_KEPT)

    def of(self, desc: SealedDataflow, outline: Outline | None = None) -> RenderedDataflow:
        """What a plan is as statements, which are made when they are needed where an outline of them is there.

        Raises:
            Unsupported: the plan cannot be maintained.
        """
        for one in tuple(self._lately):
            if one.sealed is desc or one.sealed == desc:
                return one
        return rendered_over(self._storage, desc, outline)

    def checked(self, desc: SealedDataflow) -> RenderedDataflow:
        """As `of`, remembered for the replica that is to run it next."""
        made = self.of(desc)
        self._lately.append(made)
        return made


def arrangement_desc(spec: ArrangementSpec) -> ArrangementDesc:
    """What a node's arrangement holds."""
    return ArrangementDesc(
        spec.name,
        spec.columns,
        spec.key_arity,
        spec.additive,
        False,
        spec.fingerprint,
        spec.order,
    )


def index_desc(gid: GlobalId, desc: SealedDataflow, rendered: RenderedDataflow) -> ArrangementDesc:
    """What an index holds; found again as long as its plan is the same."""
    assert rendered.output_key_arity is not None
    return ArrangementDesc(
        f"arr_{gid}",
        rendered.output_columns,
        rendered.output_key_arity,
        (),
        True,
        index_fingerprint(gid, desc.digest),
    )


class Dataflow:
    """An opened dataflow. Used by one thread at a time."""

    def __init__(
        self,
        spec: DataflowSpec,
        rendered: RenderedDataflow,
        inputs: Sequence[Input],
        indexes: Mapping[str, Arrangement],
    ) -> None:
        """Made by `open_dataflow`; `indexes` are the arrangements of imported indexes by relation name."""
        self.spec = spec
        self.rendered = rendered
        self.inputs = tuple(inputs)
        self.indexes = dict(indexes)
        self.arrangements: dict[str, Arrangement] = {}
        self.missing: list[ArrangementDesc] = []
        self.output: Target | None = None
        self.output_desc: ArrangementDesc | None = None
        self.fixpoints = Fixpoints(rendered.recursions, _FIXPOINT_ROWS, check_for_interrupts)
        self.as_of: Timestamp = spec.as_of
        #: whether it was here before, and so has had steps like those to come
        self.goes_on = False

    @property
    def gid(self) -> GlobalId:
        """The exported object."""
        return self.spec.gid

    @property
    def output_schema(self) -> pa.Schema:
        """The export's columns."""
        return arrow_schema(self.rendered.output_columns).append(pa.field("mz_error", pa.string()))

    def to_hydrate(self) -> bool:
        """Whether anything is to be filled."""
        return bool(self.missing) or self.export_to_hydrate()

    @property
    def only_follows(self) -> bool:
        """Whether somebody else writes the export, which is followed here."""
        return isinstance(self.output, Followed)

    def export_to_hydrate(self) -> bool:
        """Whether the export is."""
        if self.only_follows:
            return False
        upper: Frontier = 0 if self.output is None else self.output.known_upper
        return upper is not None and upper <= self.as_of

    def readable(self) -> dict[str, Arrangement]:
        """Every arrangement that statements read, by relation name."""
        return {**self.indexes, **self.arrangements}

    def targets(self) -> list[Target]:
        """What a step writes: the arrangements, then the export."""
        if self.output is None:
            raise InternalError(f"dataflow {self.gid} has no export yet")
        return [*self.arrangements.values(), self.output]

    def lower(self) -> Timestamp | None:
        """The lowest upper of what a step writes, of an export how far it has taken its inputs in; None when all is complete for ever."""
        assert self.output is not None
        if self.only_follows and self.arrangements:
            return meet(*(one.known_upper for one in self.arrangements.values()))
        taken_in = done(self.spec.refresh, self.output.known_upper)
        if taken_in is None:
            return None
        return meet(taken_in, *(one.known_upper for one in self.arrangements.values()))

    def durable_lower(self) -> Timestamp | None:
        """The lowest upper of the shards that a step writes: where another process would go on from."""
        assert self.output is not None
        if self.only_follows and self.arrangements:
            return meet(*(one.durable_upper for one in self.arrangements.values()))
        taken_in = done(self.spec.refresh, self.output.durable_upper)
        if taken_in is None:
            return None
        return meet(taken_in, *(one.durable_upper for one in self.arrangements.values()))

    @property
    def ended(self) -> bool:
        """Whether the export is complete for ever, in its shard too: no step reads anything any more."""
        return not self.only_follows and self.durable_lower() is None

    def flush_due(self, seconds: float, size: int) -> bool:
        """Whether some arrangement's updates have waited for so long, or are so many bytes, that they should be flushed."""
        return any(one.hot.due(seconds, size) for one in self.arrangements.values())

    def flush(self, keep_after: float) -> None:
        """Make durable what steps have added to the arrangements, and the export's progress. Steps may go on meanwhile.

        Args:
            keep_after: traces that were not kept over a restart for so many seconds are.
        """
        for arrangement in self.arrangements.values():
            arrangement.flush(keep_after)
        if isinstance(self.output, Arrangement):
            self.output.flush(keep_after)
        else:
            self.flush_output()

    def flush_output(self) -> None:
        """Have the export's shard follow. Steps may go on meanwhile."""
        if self.output is not None:
            self.output.flush()

    def pass_to_refresh(self) -> None:
        """Take note that the export changes no more before its next refresh, or for ever."""
        refresh, output = self.spec.refresh, self.output
        if refresh is None or output is None or self.only_follows:
            return
        upper = output.known_upper
        if upper is None:
            return
        following = refresh.round_up(upper)
        if following is None:
            output.append(no_updates(output.schema), upper, None)
        else:
            output.pass_over(upper, following)

    def follows_soon(self) -> bool:
        """Whether shards are behind: they are written before long, and what is held is let go of then, with fewer writes."""
        behind = any(one.hot.behind for one in self.arrangements.values())
        return behind or self.late() is not None

    def late(self) -> float | None:
        """For how many seconds the export's shard has been behind; None where it is not."""
        return None if self.output is None else self.output.late()

    def frontier(self) -> Frontier:
        """The export's upper as last seen; where that is followed, how far the arrangements are."""
        if self.only_follows:
            return self.lower()
        return 0 if self.output is None else self.output.known_upper

    def input_upper(self) -> Frontier:
        """How far all inputs are complete."""
        return meet(*(one.upper() for one in self.inputs))

    def hold(self, allowed: Timestamp) -> None:
        """Let go of what no step will read any more, here or after a crash: the times before the one below `durable_lower`.

        An index stays readable from `allowed` on, too: what reads it need no earlier time.
        """
        lower = self.durable_lower()
        if lower is None or lower == 0:
            return
        for one in self.inputs:
            one.hold(lower - 1)
        for arrangement in self.arrangements.values():
            arrangement.hold(lower - 1)
        if isinstance(self.output, Arrangement):
            self.output.hold(min(lower - 1, allowed))

    def let_go(self) -> None:
        """Hold nothing any more of what the export is made of, where it is `ended`. Idempotent."""
        inputs = [one.let_go for one in self.inputs]
        each_by_itself((*inputs, *(one.let_go for one in self.arrangements.values())))


def choose_as_of(
    wanted: Timestamp, sinces: Sequence[Frontier], found: Mapping[str, Arrangement]
) -> tuple[Timestamp, dict[str, Arrangement]]:
    """When to hydrate, and which of the arrangements found can be read then.

    Args:
        wanted: not later, unless inputs cannot be read so early any more.
        sinces: of the inputs.
        found: arrangements, filled.

    Raises:
        NotReadable: an input cannot be read at any time.
    """
    low = join(*sinces)
    if low is None:
        raise NotReadable("an input was dropped and cannot be read at any time")
    high = max(wanted, low)
    usable: dict[str, Arrangement] = {}
    for name, arrangement in found.items():
        since, upper = arrangement.since, arrangement.upper()
        if since is None:
            continue
        new_low = max(low, since)
        new_high = high if upper is None else min(high, upper - 1)
        if new_low <= new_high:
            low, high = new_low, new_high
            usable[name] = arrangement
    return high, usable


def _is_over(refresh: RefreshSchedule | None, upper: Frontier) -> bool:
    """Whether an export of this upper changes no more."""
    if upper is None:
        return True
    return refresh is not None and upper > 0 and refresh.round_up(upper) is None


def _at_refresh(
    refresh: RefreshSchedule,
    wanted: Timestamp,
    sinces: Sequence[Frontier],
    found: Mapping[str, Arrangement],
) -> tuple[Timestamp, dict[str, Arrangement]]:
    """As `choose_as_of`, of a view whose next contents are those of a refresh that is not before `wanted`: the first one that its inputs
    can be read at; where none is left of these, the earliest time that they can.
    """
    low = join(*sinces)
    if low is None:
        raise NotReadable("an input was dropped and cannot be read at any time")
    low = max(wanted, low)
    following = refresh.round_up(low)
    at = low if following is None else following
    return at, {name: one for name, one in found.items() if _holds(one, at)}


def _holds(arrangement: Arrangement, at: Timestamp) -> bool:
    """Whether an arrangement is complete at a time, and can be read there."""
    since = arrangement.since
    return since is not None and since <= at and less_than(at, arrangement.upper())


def _chosen(
    spec: DataflowSpec,
    taken_in: Timestamp,
    sinces: Sequence[Frontier],
    found: Mapping[str, Arrangement],
) -> tuple[Timestamp, dict[str, Arrangement]]:
    """When to hydrate an export that has taken in so much of its inputs, and which of the arrangements found can be read then.

    An export that has passed over the times up to its next refresh, and lacks what its inputs were before, is corrected at a refresh.
    """
    wanted = taken_in - 1 if taken_in else spec.as_of
    if spec.refresh is not None and (not taken_in or less_than(wanted, join(*sinces))):
        return _at_refresh(spec.refresh, wanted, sinces, found)
    return choose_as_of(wanted, sinces, found)


def fill_plan(
    dataflow: Dataflow,
    arrangements: Arrangements,
    persist: PersistClient,
    settings: ComputeSettings,
    log: ExportLog | None,
    storage: StorageReader,
) -> None:
    """Open the export and the arrangements that are there, and settle `as_of` and `missing`."""
    spec, rendered = dataflow.spec, dataflow.rendered
    found: dict[str, Arrangement] = {}
    descs = {one.name: arrangement_desc(one) for one in rendered.arrangements}
    output_upper: Frontier = 0
    if spec.output_shard is None:
        dataflow.output_desc = index_desc(spec.gid, spec.desc, rendered)
        output = arrangements.find(dataflow.output_desc)
        dataflow.output = output
    elif settings.read_only:
        dataflow.output = Followed(
            spec.gid, spec.output_shard, dataflow.output_schema, persist, storage
        )
    else:
        writer = persist.open_writer(
            spec.output_shard,
            dataflow.output_schema,
            purpose=f"materialized view {spec.gid}",
            timeout=settings.timeout,
        )
        dataflow.output = Target(
            persist, spec.output_shard, dataflow.output_schema, writer, settings.timeout, log
        )
    if dataflow.output is not None:
        output_upper = dataflow.output.upper()
    taken_in = done(spec.refresh, output_upper)
    if not dataflow.only_follows and _is_over(spec.refresh, output_upper):
        # No step will look into arrangements: those that are there are given up with what nobody uses.
        dataflow.as_of = spec.as_of if taken_in is None else taken_in - 1
        return
    for name, desc in descs.items():
        there = arrangements.find(desc)
        if there is not None:
            found[name] = there
    sinces = [one.since for one in dataflow.inputs]
    try:
        dataflow.as_of, usable = _chosen(spec, taken_in or 0, sinces, found)
    except NotReadable:
        each_by_itself(partial(arrangements.release, one, retire=False) for one in found.values())
        raise
    each_by_itself(
        partial(arrangements.release, one, retire=False)
        for name, one in found.items()
        if name not in usable
    )
    dataflow.arrangements = {name: usable[name] for name in descs if name in usable}
    dataflow.missing = [desc for name, desc in descs.items() if name not in usable]
