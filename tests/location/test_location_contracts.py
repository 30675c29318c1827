"""The embedded backends pass the kits."""

from __future__ import annotations

from mzsql.location import open_blob, open_consensus, open_oracle
from mzsql.testing import BlobContract, ConsensusContract, OracleContract


class TestMemBlob(BlobContract):
    def open_blob(self, place):
        return open_blob(f"mem:{place}")


class TestFileBlob(BlobContract):
    def open_blob(self, place):
        return open_blob(f"file:{place}/blob")


class TestMemConsensus(ConsensusContract):
    def open_consensus(self, place):
        return open_consensus(f"mem:{place}")


class TestSqliteConsensus(ConsensusContract):
    def open_consensus(self, place):
        return open_consensus(f"sqlite:{place}/one.db")


class TestMemOracle(OracleContract):
    def open_oracle(self, place, timeline, now):
        return open_oracle(f"mem:{place}", timeline, now)


class TestSqliteOracle(OracleContract):
    def open_oracle(self, place, timeline, now):
        return open_oracle(f"sqlite:{place}/one.db", timeline, now)
