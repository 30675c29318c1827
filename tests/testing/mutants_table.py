"""Which cases of the kit must catch which planted fault."""

from __future__ import annotations

BLOB, CONSENSUS, ORACLE = {}, {}, {}
CAUGHT_BY = {}
"""Of each mutant, as ``kind.Name``, the cases that must catch it."""


def caught_by(kind, *cases):
    def register(mutant):
        {"blob": BLOB, "consensus": CONSENSUS, "oracle": ORACLE}[kind][mutant.__name__] = mutant
        CAUGHT_BY[f"{kind}.{mutant.__name__}"] = cases
        return mutant

    return register
