"""An installed dataflow with its inputs, arrangements and output opened.

Promise: `fill_plan` finds what exists. A dataflow whose arrangements and output all exist, readable where they must
be, resumes from the lowest of their uppers. Otherwise `missing` lists the arrangements to fill, at `as_of`: the
latest time that is not later than the time asked for and at which all inputs and the found arrangements can be read.
An arrangement that cannot be read at that time is not used. If the output is complete for ever, nothing is filled
and no input is held.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from functools import partial

import msgspec
import pyarrow as pa

from mzsql.compute.dependencies import ComputeSettings, ExportLog, KnowsErrors, StorageReader
from mzsql.compute.replica.arrangements.arrangement import Arrangement, ArrangementDesc
from mzsql.compute.replica.arrangements.arrangement_shards import ArrangementShards
from mzsql.compute.replica.dataflows.fixpoints import Fixpoints
from mzsql.compute.replica.dataflows.inputs import Input
from mzsql.compute.replica.dataflows.read_only_export import ReadOnlyExport
from mzsql.compute.replica.endings import each_by_itself
from mzsql.compute.replica.target import Target, no_updates
from mzsql.lir.sealed import SealedDataflow
from mzsql.persist import PersistClient
from mzsql.render.dataflow import RenderedDataflow, render
from mzsql.render.nodes.naming import index_fingerprint
from mzsql.render.rendered import ArrangementSpec, Outline
from mzsql.repr.errors import InternalError, NotReadable
from mzsql.repr.frontier import Frontier, Timestamp, join, less_than, meet
from mzsql.repr.ids import GlobalId
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.repr.refresh import RefreshSchedule, done
from mzsql.repr.types import updates_schema

#: How many checked and rendered plans are remembered until a replica asks for them.
_KEPT = 4


#: The most rows of a recursive node whose contents are kept for the next step.
_FIXPOINT_ROWS = 1_000_000


class DataflowSpec(msgspec.Struct, frozen=True):
    """The parameters of a dataflow, as `compute.protocol.CreateDataflow` gives them."""

    gid: GlobalId
    name: str
    desc: SealedDataflow
    output_shard: str | None
    as_of: Timestamp
    #: the view's refresh schedule; None to refresh with every change
    refresh: RefreshSchedule | None = None


def rendered_over(
    storage: KnowsErrors, desc: SealedDataflow, outline: Outline | None = None
) -> RenderedDataflow:
    """Render a dataflow over its inputs as they are stored. If an outline is given, the statements are rendered only
    when they are needed.

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
    """Renders dataflows over their stored inputs. Plans that were rendered lately, to check that they can be
    maintained, are not rendered again. Thread-safe.
    """

    def __init__(self, storage: KnowsErrors) -> None:
        self._storage = storage
        self._lately: deque[RenderedDataflow] = deque(maxlen=_KEPT)

    def of(self, desc: SealedDataflow, outline: Outline | None = None) -> RenderedDataflow:
        """The rendered form of a plan; with an outline, its statements are rendered only when they are needed.

        Raises:
            Unsupported: the plan cannot be maintained.
        """
        for one in tuple(self._lately):
            if one.sealed is desc or one.sealed == desc:
                return one
        return rendered_over(self._storage, desc, outline)

    def checked(self, desc: SealedDataflow) -> RenderedDataflow:
        """As `of`, and remember the result for the replica that will run the plan."""
        made = self.of(desc)
        self._lately.append(made)
        return made


def arrangement_desc(spec: ArrangementSpec) -> ArrangementDesc:
    """Describe the arrangement of a node of the plan."""
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
    """Describe the arrangement that an index exports. Its fingerprint stays the same as long as the index's plan does."""
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
        """Make a dataflow without arrangements or output; `fill_plan` opens these.

        Args:
            spec: what was asked for.
            rendered: the plan's statements.
            inputs: its imports, opened.
            indexes: the arrangements of imported indexes by relation name.
        """
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
        #: whether it resumed, so that the steps to come are like those it has run before
        self.goes_on = False

    @property
    def gid(self) -> GlobalId:
        """The exported object."""
        return self.spec.gid

    @property
    def output_schema(self) -> pa.Schema:
        """The output's columns: c0 …, mz_error."""
        return updates_schema(self.rendered.output_columns)

    def to_hydrate(self) -> bool:
        """Whether an arrangement or the output must be filled."""
        return bool(self.missing) or self.export_to_hydrate()

    @property
    def only_follows(self) -> bool:
        """Whether another deployment writes the output, which is only followed here."""
        return isinstance(self.output, ReadOnlyExport)

    def export_to_hydrate(self) -> bool:
        """Whether the output must be filled: its upper is not beyond `as_of`."""
        if self.only_follows:
            return False
        upper: Frontier = 0 if self.output is None else self.output.known_upper
        return upper is not None and upper <= self.as_of

    def readable(self) -> dict[str, Arrangement]:
        """Every arrangement that its statements read, by relation name."""
        return {**self.indexes, **self.arrangements}

    def targets(self) -> list[Target]:
        """What a step writes, in the order in which it is written: the arrangements, then the output.

        Raises:
            InternalError: the dataflow's output is not open yet.
        """
        if self.output is None:
            raise InternalError(f"dataflow {self.gid} has no export yet")
        return [*self.arrangements.values(), self.output]

    def lower(self) -> Timestamp | None:
        """Where the next step begins: the lowest upper of what a step writes, None when all is complete for ever.

        Of an output with a refresh schedule that upper counts as far as the inputs have been taken in.
        """
        assert self.output is not None
        if self.only_follows and self.arrangements:
            return meet(*(one.known_upper for one in self.arrangements.values()))
        taken_in = done(self.spec.refresh, self.output.known_upper)
        if taken_in is None:
            return None
        return meet(taken_in, *(one.known_upper for one in self.arrangements.values()))

    def durable_lower(self) -> Timestamp | None:
        """As `lower`, by the uppers of the shards: where another process, or this one after a crash, would resume."""
        assert self.output is not None
        if self.only_follows and self.arrangements:
            return meet(*(one.durable_upper for one in self.arrangements.values()))
        taken_in = done(self.spec.refresh, self.output.durable_upper)
        if taken_in is None:
            return None
        return meet(taken_in, *(one.durable_upper for one in self.arrangements.values()))

    @property
    def ended(self) -> bool:
        """Whether the output is complete for ever, in its shard too, so that no step will read anything."""
        return not self.only_follows and self.durable_lower() is None

    def flush_due(self, seconds: float, size: int) -> bool:
        """Whether the updates of some arrangement have waited for `seconds`, or amount to `size` bytes, so that they
        should be flushed.
        """
        return any(one.hot.due(seconds, size) for one in self.arrangements.values())

    def flush(self, keep_after: float) -> None:
        """Write to the shards what steps have added to the arrangements, and the output's progress. Steps may run
        meanwhile.

        Args:
            keep_after: save traces for a restart if they were last saved more than so many seconds ago.
        """
        for arrangement in self.arrangements.values():
            arrangement.flush(keep_after)
        if isinstance(self.output, Arrangement):
            self.output.flush(keep_after)
        else:
            self.flush_output()

    def flush_output(self) -> None:
        """Write to the output's shard what it lacks. Steps may run meanwhile."""
        if self.output is not None:
            self.output.flush()

    def pass_to_refresh(self) -> None:
        """Advance the output to its next refresh, before which it cannot change; seal it after the last one."""
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
        """Whether shards are behind. They are written soon, and downgrading the holds then, instead of now, takes fewer
        writes.
        """
        behind = any(one.hot.behind for one in self.arrangements.values())
        return behind or self.late() is not None

    def late(self) -> float | None:
        """For how many seconds the output's shard has been behind; None if it is not."""
        return None if self.output is None else self.output.late()

    def frontier(self) -> Frontier:
        """The output's upper as last seen; of a view that is only followed, how far the arrangements are."""
        if self.only_follows:
            return self.lower()
        return 0 if self.output is None else self.output.known_upper

    def input_upper(self) -> Frontier:
        """The meet of the inputs' uppers."""
        return meet(*(one.upper() for one in self.inputs))

    def hold(self, allowed: Timestamp) -> None:
        """Allow the times to be compacted that no step will read again, here or after a crash: those before
        ``durable_lower() - 1``.

        An index also stays readable from `allowed` on, which is the earliest time that its readers need.
        """
        # By the durable uppers: after a crash the dataflow resumes there, and must be able to read the inputs at the
        # time before.
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
        """Hold none of the inputs and arrangements any more, once the dataflow is `ended`. Idempotent."""
        inputs = [one.let_go for one in self.inputs]
        each_by_itself((*inputs, *(one.let_go for one in self.arrangements.values())))


def choose_as_of(
    wanted: Timestamp, sinces: Sequence[Frontier], found: Mapping[str, Arrangement]
) -> tuple[Timestamp, dict[str, Arrangement]]:
    """Choose the time at which to hydrate, and which of the found arrangements can be read at that time.

    Args:
        wanted: the latest time wanted; exceeded only if an input cannot be read so early any more.
        sinces: the sinces of the inputs.
        found: filled arrangements by name.

    Returns:
        The time, and the usable ones of `found`.

    Raises:
        NotReadable: an input was dropped and cannot be read at any time.
    """
    low = join(*sinces)
    if low is None:
        raise NotReadable("an input was dropped and cannot be read at any time")
    high = max(wanted, low)
    usable: dict[str, Arrangement] = {}
    # Narrow the interval of possible times with each arrangement that is readable at one of them; the others are
    # filled again.
    for name, arrangement in found.items():
        since, upper = arrangement.since, arrangement.upper()
        if since is None:
            continue
        new_low = max(low, since)
        new_high = high if upper is None else min(high, upper - 1)
        if new_low <= new_high:
            low, high = new_low, new_high
            usable[name] = arrangement
    # As late as possible, so that little is left for the first step.
    return high, usable


def _is_over(refresh: RefreshSchedule | None, upper: Frontier) -> bool:
    """Whether an output with this upper changes no more."""
    if upper is None:
        return True
    return refresh is not None and upper > 0 and refresh.round_up(upper) is None


def _at_refresh(
    refresh: RefreshSchedule,
    wanted: Timestamp,
    sinces: Sequence[Frontier],
    found: Mapping[str, Arrangement],
) -> tuple[Timestamp, dict[str, Arrangement]]:
    """As `choose_as_of`, for a view with a refresh schedule: the time is that of the first refresh at or after `wanted`
    at which the inputs can be read, or, if none is left, the earliest time at which they can.
    """
    low = join(*sinces)
    if low is None:
        raise NotReadable("an input was dropped and cannot be read at any time")
    low = max(wanted, low)
    following = refresh.round_up(low)
    at = low if following is None else following
    return at, {name: one for name, one in found.items() if _holds(one, at)}


def _holds(arrangement: Arrangement, at: Timestamp) -> bool:
    """Whether an arrangement is complete and readable at a time."""
    since = arrangement.since
    return since is not None and since <= at and less_than(at, arrangement.upper())


def _chosen(
    spec: DataflowSpec,
    taken_in: Timestamp,
    sinces: Sequence[Frontier],
    found: Mapping[str, Arrangement],
) -> tuple[Timestamp, dict[str, Arrangement]]:
    """When to hydrate an output whose inputs were taken in up to `taken_in`, and which of the found arrangements can be
    read then.

    An output that has advanced to its next refresh, while its inputs were compacted beyond what it took in, is
    corrected at a refresh.
    """
    wanted = taken_in - 1 if taken_in else spec.as_of
    if spec.refresh is not None and (not taken_in or less_than(wanted, join(*sinces))):
        return _at_refresh(spec.refresh, wanted, sinces, found)
    return choose_as_of(wanted, sinces, found)


def fill_plan(
    dataflow: Dataflow,
    arrangements: ArrangementShards,
    persist: PersistClient,
    settings: ComputeSettings,
    log: ExportLog | None,
    storage: StorageReader,
) -> None:
    """Open the output and the arrangements that exist, and set the dataflow's `as_of` and `missing`.

    Raises:
        NotReadable: an input was dropped and cannot be read at any time.
    """
    spec, rendered = dataflow.spec, dataflow.rendered
    found: dict[str, Arrangement] = {}
    descs = {one.name: arrangement_desc(one) for one in rendered.arrangements}
    output_upper: Frontier = 0
    if spec.output_shard is None:
        dataflow.output_desc = index_desc(spec.gid, spec.desc, rendered)
        output = arrangements.find(dataflow.output_desc)
        dataflow.output = output
    elif settings.read_only:
        dataflow.output = ReadOnlyExport(
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
        # No step will look into arrangements, so none is opened, and existing ones are deleted with those that nobody
        # uses.
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
