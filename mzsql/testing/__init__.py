"""The kit with which a backend is proved right, ours and strangers': contract cases, state machines, histories of processes, faults.

Two forms run the same cases (`BLOB_CASES`, `CONSENSUS_CASES`, `ORACLE_CASES`):

- under pytest: subclass `BlobContract`, `ConsensusContract` or `OracleContract` and answer the URL of the backend in ``url(place)``;
- without it: ``run_kit(url)``, which is also ``mzsql plugins test URL``. It keeps to keys and timelines of its own, below
  ``mzsql-kit-<uuid>/``, removes the objects it wrote, and truncates the logs it wrote to one entry each, as no Consensus removes the
  newest; of an oracle the rows of its timelines stay.

Needs hypothesis (the extra ``mzsql[testing]``), not pytest. The names are imported when first used, so that the processes the kit starts
load no more than they need.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mzsql.testing.blob import BlobContract
    from mzsql.testing.cases import BLOB_CASES, CONSENSUS_CASES, ORACLE_CASES
    from mzsql.testing.consensus import ConsensusContract
    from mzsql.testing.contract import Case, Contract, Site
    from mzsql.testing.faults import Faults, FaultyBlob, FaultyConsensus, FaultyOracle
    from mzsql.testing.kit import KIT_VERSION, CaseResult, KitReport, case_names, run_kit
    from mzsql.testing.linearizability import Operation, Verdict, check_history
    from mzsql.testing.oracle import OracleContract
    from mzsql.testing.speed import Latency, SpeedRow, SpeedSheet, measure_speed

_HOMES = {
    "measure_speed": "speed",
    "SpeedSheet": "speed",
    "SpeedRow": "speed",
    "Latency": "speed",
    "FaultyOracle": "faults",
    "run_kit": "kit",
    "case_names": "kit",
    "KitReport": "kit",
    "CaseResult": "kit",
    "KIT_VERSION": "kit",
    "BLOB_CASES": "cases",
    "CONSENSUS_CASES": "cases",
    "ORACLE_CASES": "cases",
    "BlobContract": "blob",
    "Case": "contract",
    "ConsensusContract": "consensus",
    "Contract": "contract",
    "Faults": "faults",
    "FaultyBlob": "faults",
    "FaultyConsensus": "faults",
    "Operation": "linearizability",
    "OracleContract": "oracle",
    "Site": "contract",
    "Verdict": "linearizability",
    "check_history": "linearizability",
}

__all__ = [
    "BLOB_CASES",
    "CONSENSUS_CASES",
    "KIT_VERSION",
    "ORACLE_CASES",
    "BlobContract",
    "Case",
    "CaseResult",
    "ConsensusContract",
    "Contract",
    "Faults",
    "FaultyBlob",
    "FaultyConsensus",
    "FaultyOracle",
    "KitReport",
    "Latency",
    "Operation",
    "OracleContract",
    "Site",
    "SpeedRow",
    "SpeedSheet",
    "Verdict",
    "case_names",
    "check_history",
    "measure_speed",
    "run_kit",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'mzsql.testing' has no attribute {name!r}")
    try:
        home = importlib.import_module(f"mzsql.testing.{_HOMES[name]}")
    except ModuleNotFoundError as failure:
        if failure.name != "hypothesis":
            raise
        raise ModuleNotFoundError(
            "the kit for backends needs hypothesis: pip install 'mzsql[testing]'", name=failure.name
        ) from failure
    return getattr(home, name)


def __dir__() -> list[str]:
    return sorted(__all__)
