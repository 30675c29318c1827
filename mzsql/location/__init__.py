"""The stores: the protocols `Blob`, `Consensus` and `TimestampOracle`, their errors, and the plugins that implement
them.

A plugin author imports `hookimpl`, the protocols and the errors from here; everyone else opens backends by URL with
`open_blob`, `open_consensus` and `open_oracle`. The embedded backends are `mem:`, `file:` and `sqlite:`.
"""

from __future__ import annotations

from mzsql.location.around import Around, blob_around, consensus_around
from mzsql.location.attempts import attempted, observing
from mzsql.location.deadlines import (
    at_most,
    caller_left,
    caller_limit,
    seconds_left,
    waiting,
)
from mzsql.location.errors import (
    ContestedScheme,
    Determinate,
    Indeterminate,
    InvalidUrl,
    LocationError,
    PluginFailed,
    PluginRelationFailed,
    PluginWarning,
    UnknownScheme,
    UsageError,
)
from mzsql.location.hookspecs import (
    HOOKS_VERSION,
    PluginColumn,
    PluginRelation,
    Serves,
    Whereabouts,
    hookimpl,
)
from mzsql.location.protocols import (
    MAX_SEQNO,
    Adoptable,
    Blob,
    Clocked,
    Consensus,
    ConsensusWait,
    ManyDeletable,
    ManyScannable,
    RangeReadable,
    SparkReadable,
    TimestampOracle,
    Unfinished,
    UploadSweepable,
    Versioned,
)
from mzsql.location.registry import (
    Installed,
    Registry,
    default_registry,
    open_blob,
    open_consensus,
    open_oracle,
)
from mzsql.location.urls import (
    local_path,
    local_url,
    shown_url,
    split_url,
    url_options,
    without_secrets,
)

__all__ = [
    "HOOKS_VERSION",
    "MAX_SEQNO",
    "Adoptable",
    "Around",
    "Blob",
    "Clocked",
    "Consensus",
    "ConsensusWait",
    "ContestedScheme",
    "Determinate",
    "Indeterminate",
    "Installed",
    "InvalidUrl",
    "LocationError",
    "ManyDeletable",
    "ManyScannable",
    "PluginColumn",
    "PluginFailed",
    "PluginRelation",
    "PluginRelationFailed",
    "PluginWarning",
    "RangeReadable",
    "Registry",
    "Serves",
    "SparkReadable",
    "TimestampOracle",
    "Unfinished",
    "UnknownScheme",
    "UploadSweepable",
    "UsageError",
    "Versioned",
    "Whereabouts",
    "at_most",
    "attempted",
    "blob_around",
    "caller_left",
    "caller_limit",
    "consensus_around",
    "default_registry",
    "hookimpl",
    "local_path",
    "local_url",
    "observing",
    "open_blob",
    "open_consensus",
    "open_oracle",
    "seconds_left",
    "shown_url",
    "split_url",
    "url_options",
    "waiting",
    "without_secrets",
]
