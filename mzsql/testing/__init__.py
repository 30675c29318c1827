"""The kits every backend must pass, ours and strangers': contract cases with hypothesis models and contention runs, and injected faults.

Needs pytest and hypothesis. A plugin's tests subclass `BlobContract`, `ConsensusContract` or `OracleContract`.
"""

from __future__ import annotations

from mzsql.testing.blob import BlobContract
from mzsql.testing.consensus import ConsensusContract
from mzsql.testing.faults import Faults, FaultyBlob, FaultyConsensus
from mzsql.testing.oracle import OracleContract

__all__ = [
    "BlobContract",
    "ConsensusContract",
    "Faults",
    "FaultyBlob",
    "FaultyConsensus",
    "OracleContract",
]
