"""The embedded backends pass the kits."""

from __future__ import annotations

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
