"""Places with settings smaller than a URL takes, so that a test's objects need not have megabytes and its failures not minutes."""

from __future__ import annotations

from typing import Any

import msgspec
from mzsql_s3 import Place, place_of

from mzsql.location import split_url

SMALL: dict[str, Any] = {"multipart_threshold": 1000, "part_size": 400}
PATIENT: dict[str, Any] = {"timeout": 60.0, "read_timeout": 10.0, "connect_timeout": 5.0}
BRIEF: dict[str, Any] = {"timeout": 60.0, "read_timeout": 2.0, "connect_timeout": 5.0}
"""Gives a request up soon, though not before a busy machine has answered one that nothing befalls."""
FEW: dict[str, Any] = {**BRIEF, "attempts": 2}
IMPATIENT: dict[str, Any] = {"timeout": 2.0, "read_timeout": 0.5, "attempts": 2}


def place(url: str, **options: object) -> Place:
    """The place of a URL, with other ``options``."""
    found = place_of(split_url(url))
    return msgspec.structs.replace(found, options=msgspec.structs.replace(found.options, **options))
