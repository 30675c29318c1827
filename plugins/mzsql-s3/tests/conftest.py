"""One server for the tests of this folder; each test has a prefix of its own."""

from __future__ import annotations

import pytest
from s3_server import S3Server


@pytest.fixture(scope="session")
def s3():
    with S3Server() as server:
        yield server


@pytest.fixture
def opened(s3):
    """Opens blobs that are closed in the end."""
    from mzsql_s3 import S3Blob
    from s3_places import place

    blobs = []

    def make(**options):
        blobs.append(S3Blob(place(options.pop("url", None) or s3.fresh_url(), **options)))
        return blobs[-1]

    yield make
    for blob in blobs:
        blob.close()


@pytest.fixture(scope="session")
def s3_of_small_parts():
    """A server that takes parts of any size."""
    with S3Server("mzsql-small", minimum_part=1) as server:
        yield server
