"""Where durable things live: the protocols `Blob`, `Consensus` and `TimestampOracle`, their errors, and the plugins that serve them.

A plugin author imports `hookimpl`, the protocols and the errors from here; everyone else opens backends by URL with `open_blob`,
`open_consensus` and `open_oracle`. The embedded backends are `mem:`, `file:` and `sqlite:`.
"""

from __future__ import annotations

from mzsql.location.errors import (
    Determinate,
    Indeterminate,
    InvalidUrl,
    LocationError,
    UnknownScheme,
    UsageError,
)
from mzsql.location.hookspecs import hookimpl
from mzsql.location.protocols import (
    MAX_SEQNO,
    Adoptable,
    Blob,
    Consensus,
    ConsensusWait,
    RangeReadable,
    SparkReadable,
    TimestampOracle,
    Versioned,
)
from mzsql.location.registry import (
    Registry,
    default_registry,
    local_path,
    local_url,
    open_blob,
    open_consensus,
    open_oracle,
    split_url,
)

__all__ = [
    "MAX_SEQNO",
    "Adoptable",
    "Blob",
    "Consensus",
    "ConsensusWait",
    "Determinate",
    "Indeterminate",
    "InvalidUrl",
    "LocationError",
    "RangeReadable",
    "Registry",
    "SparkReadable",
    "TimestampOracle",
    "UnknownScheme",
    "UsageError",
    "Versioned",
    "default_registry",
    "hookimpl",
    "local_path",
    "local_url",
    "open_blob",
    "open_consensus",
    "open_oracle",
    "split_url",
]
