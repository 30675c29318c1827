"""mzsql's Blob store on S3 and on what speaks its API: ``s3://bucket/prefix?endpoint=…&region=…``.

Promise: a plugin like any other, found by its entry point. `S3Blob` with a `Place` of one's own `Options` is for programs that open it
without a URL.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from urllib.parse import SplitResult

from mzsql.location import Blob, Serves, hookimpl
from mzsql_s3.blob import S3Blob
from mzsql_s3.options import Options, Place, place_of

MZSQL_HOOKS = 1
SCRATCH_VARIABLE = "MZSQL_TEST_S3_URL"
"""Names a URL below which the kit may write: ``s3://bucket/prefix?endpoint=…``."""

_RUN = uuid.uuid4().hex

__all__ = ["MZSQL_HOOKS", "Options", "Place", "S3Blob", "mzsql_open_blob", "place_of"]


@hookimpl
def mzsql_serves() -> list[Serves]:
    """Buckets."""
    return [Serves("blob", ("s3",), "s3://bucket/prefix?endpoint=http://host:port&region=name")]


@hookimpl
def mzsql_open_blob(url: SplitResult) -> Blob | None:
    """``s3://bucket/prefix?option=value&…``."""
    return S3Blob(place_of(url)) if url.scheme == "s3" else None


@hookimpl
def mzsql_scratch_url(kind: str, directory: str) -> str | None:
    """A prefix for ``directory`` below the URL in the environment's variable ``MZSQL_TEST_S3_URL``, where that is set."""
    url = os.environ.get(SCRATCH_VARIABLE)
    if kind != "blob" or not url:
        return None
    return below(url, hashlib.sha256(f"{_RUN} {directory}".encode()).hexdigest()[:20])


def below(url: str, part: str) -> str:
    """The URL of a prefix below that of ``url``."""
    before, question, options = url.partition("?")
    return f"{before.rstrip('/')}/{part}{question}{options}"
