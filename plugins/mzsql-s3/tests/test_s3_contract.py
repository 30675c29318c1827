"""The kit, on moto's server with settings of every day and with tiny parts, and on the server of ``MZSQL_TEST_S3_URL``.

Every day all but its heaviest cases run (`conftest`), with settings of every day.
"""

from __future__ import annotations

import os
import uuid

import pytest
from mzsql_s3 import S3Blob, below
from s3_places import place as small

from mzsql.testing import BlobContract

_GIVEN = os.environ.get("MZSQL_TEST_S3_URL")


class TestS3Blob(BlobContract):
    @pytest.fixture(autouse=True)
    def _server(self, s3):
        self._s3 = s3

    def url(self, place):
        return self._s3.url(str(place).strip("/"))


@pytest.mark.long
class TestS3BlobInParts(TestS3Blob):
    """Whatever has over 40 bytes is written and read as a long object is."""

    test_list_many = None  # a listing knows no parts

    @pytest.fixture(autouse=True)
    def _server(self, s3_of_small_parts):
        self._s3 = s3_of_small_parts

    def open_blob(self, place):
        return S3Blob(small(self.url(place), multipart_threshold=40, part_size=200_000))


@pytest.mark.long
@pytest.mark.skipif(_GIVEN is None, reason="MZSQL_TEST_S3_URL names no server")
class TestS3BlobOfServer(BlobContract):
    run = uuid.uuid4().hex

    def url(self, place):
        return below(_GIVEN, f"mzsql-kit-{self.run}/{str(place).strip('/')}")
