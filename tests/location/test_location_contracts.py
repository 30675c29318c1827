"""The embedded backends pass the kits."""

from __future__ import annotations

import pytest

from mzsql.testing import BlobContract, ConsensusContract, OracleContract


class TestMemBlob(BlobContract):
    processes = False
    fresh = True

    def url(self, place):
        return f"mem:{place}"


class TestFileBlob(BlobContract):
    fresh = True

    def url(self, place):
        return f"file:{place}/blob"


class TestMemConsensus(ConsensusContract):
    processes = False
    fresh = True

    def url(self, place):
        return f"mem:{place}"


class TestSqliteConsensus(ConsensusContract):
    fresh = True

    def url(self, place):
        return f"sqlite:{place}/one.db"


class TestMemOracle(OracleContract):
    processes = False
    fresh = True

    def url(self, place):
        return f"mem:{place}"


class TestSqliteOracle(OracleContract):
    fresh = True

    def url(self, place):
        return f"sqlite:{place}/one.db"


@pytest.mark.long
class TestFileBlobAtLength(TestFileBlob):
    level = "full"


@pytest.mark.long
class TestSqliteConsensusAtLength(TestSqliteConsensus):
    level = "full"


@pytest.mark.long
class TestSqliteOracleAtLength(TestSqliteOracle):
    level = "full"


@pytest.mark.long
class TestMemBlobAtLength(TestMemBlob):
    level = "full"


@pytest.mark.long
class TestMemConsensusAtLength(TestMemConsensus):
    level = "full"


@pytest.mark.long
class TestMemOracleAtLength(TestMemOracle):
    level = "full"
