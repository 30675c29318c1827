"""The optimizer's pipeline, as a list to be read.

Promise: each transform preserves the meaning of a plan, and applied to its own result changes nothing. Groups in
`Fixpoint` run until nothing changes, at most `LIMIT` times.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from mzsql.expr import relation as mir
from mzsql.expr.memo import memo, remembering
from mzsql.repr.interrupt import check_for_interrupts
from mzsql.transform.canonicalize_mfp import canonicalize_mfp
from mzsql.transform.coalesce_case import coalesce_case
from mzsql.transform.context import OptimizerContext
from mzsql.transform.equivalence_propagation import (
    equivalence_propagation,
    lift_fixed_keys,
    project_firsts,
)
from mzsql.transform.flat_map_elimination import flat_map_elimination
from mzsql.transform.fold_constants import fold_constants
from mzsql.transform.fusion import fusion
from mzsql.transform.join_implementation import join_implementation
from mzsql.transform.literal_constraints import literal_constraints
from mzsql.transform.literal_lifting import literal_lifting
from mzsql.transform.non_null_requirements import non_null_requirements
from mzsql.transform.normalize_lets import normalize_lets, settle_lets
from mzsql.transform.predicate_pushdown import predicate_pushdown
from mzsql.transform.projection_lifting import projection_lifting
from mzsql.transform.projection_pushdown import (
    projection_pushdown,
    projection_pushdown_after_cse,
)
from mzsql.transform.reduce_elision import reduce_elision
from mzsql.transform.reduce_reduction import reduce_reduction
from mzsql.transform.reduction_pushdown import reduction_pushdown
from mzsql.transform.redundant_join import redundant_join
from mzsql.transform.relation_cse import relation_cse, relation_cse_inline_mfp
from mzsql.transform.semijoin_idempotence import semijoin_idempotence
from mzsql.transform.threshold_elision import threshold_elision
from mzsql.transform.union_cancel import union_branch_cancellation
from mzsql.transform.visit import shared
from mzsql.transform.will_distinct import will_distinct

#: Most rounds of a fixpoint. Reaching it is harmless; the plan is only less good. Plans of queries settle in three or
#: four rounds; what takes more gains one level of nesting in each round.
LIMIT = 20

Run = Callable[[mir.Relation, OptimizerContext], mir.Relation]


@dataclass(frozen=True)
class Transform:
    """A named rewrite.

    Attributes:
        name: the name; transforms with the same name do the same.
        run: rewrites a plan.
        by_indexes: whether the result depends on the indexes and statistics in the context.
    """

    name: str
    run: Run
    by_indexes: bool = False


@dataclass(frozen=True)
class Fixpoint:
    """Transforms that run one after another, until a round changes nothing."""

    name: str
    transforms: tuple[Transform | Fixpoint, ...]


def plain(f: Callable[[mir.Relation], mir.Relation]) -> Transform:
    """A transform that needs no context."""
    return Transform(f.__name__, lambda rel, _ctx: f(rel))


def contextual(f: Run, *, by_indexes: bool = False) -> Transform:
    """A transform that needs the context; `by_indexes` as for `Transform`."""
    return Transform(f.__name__, f, by_indexes)


Stage = Transform | Fixpoint

#: Transforms that make a plan smaller wherever they apply.
COLLAPSE = Fixpoint(
    "collapse",
    (
        plain(fusion),
        plain(will_distinct),
        plain(union_branch_cancellation),
        plain(redundant_join),
        contextual(fold_constants),
        contextual(flat_map_elimination),
        plain(settle_lets),
    ),
)

_SETTLING: tuple[Stage, ...] = (
    plain(normalize_lets),
    # Simplify each predicate as it was written, before `COLLAPSE` merges filters.
    contextual(fold_constants),
    plain(non_null_requirements),
    COLLAPSE,
    plain(threshold_elision),
    Fixpoint(
        "logical",
        (
            plain(predicate_pushdown),
            contextual(equivalence_propagation),
            # Before projection pushdown narrows each input to what is read of it: afterwards equal inputs may differ.
            plain(redundant_join),
            plain(projection_pushdown),
            plain(semijoin_idempotence),
            plain(reduction_pushdown),
            plain(reduce_elision),
            contextual(reduce_reduction),
            COLLAPSE,
            plain(threshold_elision),
        ),
    ),
)
_CANONICALIZE = plain(canonicalize_mfp)
_SHARE = plain(relation_cse_inline_mfp)

LOGICAL: tuple[Stage, ...] = (*_SETTLING, _CANONICALIZE, _SHARE)

PHYSICAL: tuple[Stage, ...] = (
    # First, so that narrowed inputs have their columns in the order of the inputs below, and none twice.
    contextual(project_firsts),
    Fixpoint(
        "lift",
        (
            plain(projection_lifting),
            plain(literal_lifting),
            plain(fusion),
        ),
    ),
    Fixpoint(
        "narrow",
        (
            contextual(lift_fixed_keys),
            plain(literal_lifting),
            contextual(fold_constants),
            contextual(coalesce_case),
            plain(projection_pushdown),
            plain(fusion),
        ),
    ),
    contextual(literal_constraints, by_indexes=True),
    contextual(join_implementation, by_indexes=True),
    contextual(equivalence_propagation),
    contextual(fold_constants),
    plain(canonicalize_mfp),
    contextual(project_firsts),
    plain(relation_cse),
    contextual(projection_pushdown_after_cse),
    plain(canonicalize_mfp),
    contextual(fold_constants),
    plain(normalize_lets),
)


class _Runner:
    """Applies transforms. None is applied twice to the same plan, nor to a result of that same transform, by all runners
    with the same context in a run of memos; one that looks at indexes, by this runner.

    Equal parts of the plans of a run are one object (`shared`), so what is known of a part is found again by its
    identity.
    """

    def __init__(self, ctx: OptimizerContext) -> None:
        self._ctx = ctx
        made: dict[object, dict[tuple[str, int], mir.Relation]] = memo("made by transforms")
        self._made = made.setdefault((ctx.features, ctx.evaluator), {})
        self._made_here: dict[tuple[str, int], mir.Relation] = {}

    def stages(self, stages: Sequence[Stage], rel: mir.Relation) -> mir.Relation:
        for stage in stages:
            rel = self._stage(stage, rel)
        return rel

    def _stage(self, stage: Stage, rel: mir.Relation) -> mir.Relation:
        if isinstance(stage, Transform):
            return self._transform(stage, rel)
        return self._fixpoint(stage, rel)

    def _fixpoint(self, stage: Fixpoint, rel: mir.Relation) -> mir.Relation:
        for _ in range(LIMIT):
            before = rel
            rel = self.stages(stage.transforms, rel)
            if rel is before:
                return before
        return rel

    def _transform(self, stage: Transform, rel: mir.Relation) -> mir.Relation:
        made = self._made_here if stage.by_indexes else self._made
        known = made.get((stage.name, id(rel)))
        if known is not None:
            return known
        check_for_interrupts()
        new = shared(stage.run(rel, self._ctx))
        made[stage.name, id(rel)] = new
        made[stage.name, id(new)] = new
        if self._ctx.check is not None and new is not rel:
            self._ctx.check(stage.name, new)
        return new


def run(stages: Sequence[Stage], rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Run stages one after another.

    Raises:
        Determinate: whoever waits for the plan does not wait any longer (`mzsql.location.deadlines`).
    """
    with remembering():
        return _Runner(ctx).stages(stages, shared(rel))


def optimize_logical(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Run the transforms that do not consider indexes."""
    return run(LOGICAL, rel, ctx)


def optimize_query(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Run the transforms that do not consider indexes, over what is optimized as a whole next, in the same run of memos.

    A plan in which nothing is shared is left as its fixpoint has it: if nothing is inlined, the whole begins with that
    same plan, of which everything is known.
    """
    with remembering():
        runner = _Runner(ctx)
        settled = runner.stages(_SETTLING, shared(rel))
        alone = runner.stages([_CANONICALIZE], settled)
        found = runner.stages([_SHARE], alone)
        return settled if found is alone else found


def optimize(rel: mir.Relation, ctx: OptimizerContext) -> mir.Relation:
    """Run all transforms over one object of a dataflow."""
    return run((*LOGICAL, *PHYSICAL), rel, ctx)
