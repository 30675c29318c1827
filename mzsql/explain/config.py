"""The options of EXPLAIN, and the protocol that names ids.

Promise: `ExplainConfig.from_options` accepts option names in the spellings that people use (``node_ids``, ``node
identifiers``, any case); an unknown one is an error that lists all options.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from mzsql.repr.booleans import boolean_of
from mzsql.repr.errors import InvalidParameter, SqlSyntaxError, Unsupported
from mzsql.repr.ids import GlobalId

#: Aliases of options.
_ALIASES = {"node_ids": "node_identifiers"}
#: Known options that are not implemented: they cannot be switched on.
_MISSING = frozenset({"linear_chains", "raw_plans"})


class ExplainConfig(msgspec.Struct, frozen=True):
    """The options of EXPLAIN; all off by default."""

    arity: bool = False
    cardinality: bool = False
    column_names: bool = False
    equivalences: bool = False
    filter_pushdown: bool = False
    humanized_expressions: bool = False
    join_implementations: bool = False
    keys: bool = False
    linear_chains: bool = False
    no_fast_path: bool = False
    no_notices: bool = False
    node_identifiers: bool = False
    non_negative: bool = False
    raw: bool = False
    raw_plans: bool = False
    raw_syntax: bool = False
    redacted: bool = False
    subtree_size: bool = False
    timing: bool = False
    types: bool = False
    enable_cardinality_estimates: bool | None = None
    enable_coalesce_case_transform: bool | None = None
    enable_eager_delta_joins: bool | None = None
    enable_join_prioritize_arranged: bool | None = None
    enable_letrec_fixpoint_analysis: bool | None = None
    enable_new_outer_join_lowering: bool | None = None
    enable_projection_pushdown_after_relation_cse: bool | None = None
    enable_reduce_mfp_fusion: bool | None = None
    enable_reduce_reduction: bool | None = None
    enable_variadic_left_join_lowering: bool | None = None
    reoptimize_imported_views: bool | None = None

    @staticmethod
    def from_options(options: Mapping[str, bool | int | str]) -> ExplainConfig:
        """The configuration for WITH (…).

        Raises:
            SqlError: an option is unknown, not implemented, or has a value that it cannot have.
        """
        known = set(ExplainConfig.__struct_fields__)
        values: dict[str, bool] = {}
        for name, value in options.items():
            key = name.strip().lower().replace(" ", "_")
            key = _ALIASES.get(key, key)
            if key not in known:
                listed = ", ".join(sorted(k.replace("_", " ") for k in known))
                raise SqlSyntaxError(
                    f'Expected a valid explain plan option name, found identifier "{name}"',
                    hint=f"Options are: {listed}.",
                )
            values[key] = _truth(name, value)
            if key in _MISSING and values[key]:
                raise Unsupported(f"EXPLAIN … WITH ({name}) is not supported")
        return ExplainConfig(**values)

    def overrides(self) -> dict[str, bool]:
        """The optimizer's switches set for this statement, by name."""
        values = {n: getattr(self, n) for n in self.__struct_fields__ if n.startswith("enable_")}
        return {name: value for name, value in values.items() if value is not None}


def _truth(name: str, value: bool | int | str) -> bool:
    if isinstance(value, bool):
        return value
    found = boolean_of(str(value))
    if found is not None:
        return found
    raise InvalidParameter(f"invalid {name}: cannot use value as boolean")


class Humanizer(Protocol):
    """Names for ids, from the catalog."""

    def name(self, gid: GlobalId) -> str:
        """The object's qualified name, ``materialize.public.t``; for an id that no longer exists ``[DELETED INDEX]`` or
        the id.
        """
        ...

    def column_names(self, gid: GlobalId) -> Sequence[str] | None:
        """The names of the object's columns; None where they are unknown."""
        ...
