"""EXPLAIN: every stage of a plan as text, JSON or a graph.

`explain_hir` (RAW), `explain_relation` (DECORRELATED, LOCALLY OPTIMIZED), `explain_mir` (OPTIMIZED), `explain_lir`
(PHYSICAL), `explain_fast_path` (OPTIMIZED and PHYSICAL of a query without a dataflow); and as JSON `hir_json`,
`relation_json`, `mir_json`, `lir_json`, `fast_path_json`. The formats are Materialize's, so that its documentation and
tools apply.
"""

from mzsql.explain.as_json import fast_path_json, hir_json, lir_json, mir_json, relation_json
from mzsql.explain.config import ExplainConfig, Humanizer
from mzsql.explain.document import Frame, explain_lir
from mzsql.explain.fast_path import explain_fast_path
from mzsql.explain.hir import explain_hir
from mzsql.explain.mir import explain_mir, explain_relation
from mzsql.explain.notices import Notice, NoticeFinder, comparisons_with_null

__all__ = [
    "ExplainConfig",
    "Frame",
    "Humanizer",
    "Notice",
    "NoticeFinder",
    "comparisons_with_null",
    "explain_fast_path",
    "explain_hir",
    "explain_lir",
    "explain_mir",
    "explain_relation",
    "fast_path_json",
    "hir_json",
    "lir_json",
    "mir_json",
    "relation_json",
]
