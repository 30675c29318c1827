"""Computes `catalog/columns.json`, the columns of all builtin views, which `mzsql.catalog.described` reads, and gives numbers to builtin
relations that have none in `catalog/ids.json`, which `mzsql.catalog.builtin_ids` reads.

    python -m mzsql.adapter.planning.builtin_columns

writes the files anew in the installation that runs it. Run it after adding a builtin relation or changing the text of one.
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path

import msgspec

from mzsql.adapter.environment.expression_cache import ExpressionCache
from mzsql.adapter.planning.planner import Planner
from mzsql.adapter.planning.process import CatalogKinds
from mzsql.catalog import builtin_ids
from mzsql.catalog.builtin import PACKAGE, builtins
from mzsql.catalog.described import FILE, Described, fingerprints, texts
from mzsql.catalog.state import CatalogState
from mzsql.compute.replica.dataflows.dataflow import Renderings
from mzsql.transform import OptimizerFeatures


def described_now() -> dict[str, Described]:
    """The entries of all builtin views, by full name, computed by lowering their queries."""
    state = CatalogState()
    planner = Planner(
        lambda: state,
        ExpressionCache.in_memory(),
        OptimizerFeatures,
        Renderings(CatalogKinds(state)),
    )
    try:
        known, names = builtins(), {gid: one.full_name for gid, one in builtins().items()}
        views = [one for one in known.values() if one.kind == "view"]
        found = {one.full_name: planner.descriptions.described(one) for one in views}
    finally:
        planner.close()
    reads = {name: tuple(sorted(names[gid] for gid in gids)) for name, (_, gids) in found.items()}
    of = fingerprints(texts(), reads)
    return {name: Described(of[name], reads[name], desc) for name, (desc, _) in found.items()}


def written(described: dict[str, Described]) -> str:
    """The file's text, a line for each view."""
    lines = (
        f"{msgspec.json.encode(name).decode()}: {msgspec.json.encode(one).decode()}"
        for name, one in sorted(described.items())
    )
    return "{\n" + ",\n".join(lines) + "\n}\n"


if __name__ == "__main__":
    folder = Path(str(resources.files(PACKAGE)))
    known = builtin_ids.numbered(builtin_ids.numbers(), texts())
    (folder / builtin_ids.FILE).write_text(builtin_ids.written(known), encoding="utf-8")
    (folder / FILE).write_text(written(described_now()), encoding="utf-8")
