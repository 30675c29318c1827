"""mzsql's Blob store on S3 and servers with its API: ``s3://bucket/prefix?endpoint=…&region=…``.

Promise: an ordinary plugin, found by its entry point. `S3Blob`, with a `Place` and `Options`, is for programs that open
it without a URL. boto3, which is slow to import, is imported when the first store is opened.
"""

from __future__ import annotations

import hashlib
import os
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult

from mzsql.location import Blob, Serves, hookimpl
from mzsql_s3.options import Options, Place, place_of

if TYPE_CHECKING:
    from mzsql_s3.blob import S3Blob

MZSQL_HOOKS = 1
SCRATCH_VARIABLE = "MZSQL_TEST_S3_URL"
"""The environment variable with a URL that the kit may write below: ``s3://bucket/prefix?endpoint=…``."""

_RUN = uuid.uuid4().hex

__all__ = ["MZSQL_HOOKS", "Options", "Place", "S3Blob", "mzsql_open_blob", "place_of"]


def __getattr__(name: str) -> Any:
    """``S3Blob``, imported on first access."""
    if name != "S3Blob":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from mzsql_s3 import blob  # noqa: PLC0415 -- with boto3

    return blob.S3Blob


@hookimpl
def mzsql_serves() -> list[Serves]:
    """Blob stores in buckets."""
    return [Serves("blob", ("s3",), "s3://bucket/prefix?endpoint=http://host:port&region=name")]


@hookimpl
def mzsql_open_blob(url: SplitResult) -> Blob | None:
    """``s3://bucket/prefix?option=value&…``."""
    if url.scheme != "s3":
        return None
    blob: Blob = __getattr__("S3Blob")(place_of(url))
    return blob


@hookimpl
def mzsql_scratch_url(kind: str, directory: str) -> str | None:
    """A prefix for ``directory`` below the URL in the environment variable ``MZSQL_TEST_S3_URL``, if set."""
    url = os.environ.get(SCRATCH_VARIABLE)
    if kind != "blob" or not url:
        return None
    return below(url, hashlib.sha256(f"{_RUN} {directory}".encode()).hexdigest()[:20])


def below(url: str, part: str) -> str:
    """The URL of a prefix below that of ``url``."""
    before, question, options = url.partition("?")
    return f"{before.rstrip('/')}/{part}{question}{options}"
