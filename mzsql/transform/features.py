"""The optimizer's feature switches: everything besides the query that determines a plan, so they are stored with every
cached plan.
"""

from __future__ import annotations

import msgspec


class OptimizerFeatures(msgspec.Struct, frozen=True, cache_hash=True):
    """Switches of optimization and lowering, named like Materialize's system variables."""

    enable_eager_delta_joins: bool = True
    enable_reduce_mfp_fusion: bool = True
    enable_consolidate_after_union_negate: bool = True
    persist_fast_path_limit: int = 25
    enable_reduce_reduction: bool = False
    enable_coalesce_case_transform: bool = False
    enable_cardinality_estimates: bool = False
    enable_projection_pushdown_after_relation_cse: bool = True
    enable_join_prioritize_arranged: bool = False
    enable_new_outer_join_lowering: bool = True
    enable_variadic_left_join_lowering: bool = True
    enable_letrec_fixpoint_analysis: bool = False
