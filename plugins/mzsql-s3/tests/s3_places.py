"""Places with settings smaller than a URL takes, so that a test's objects need not have megabytes."""

from __future__ import annotations

import msgspec
from mzsql_s3 import Place, place_of

from mzsql.location import split_url


def place(url: str, **options: object) -> Place:
    """The place of a URL, with other ``options``."""
    found = place_of(split_url(url))
    return msgspec.structs.replace(found, options=msgspec.structs.replace(found.options, **options))
