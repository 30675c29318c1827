"""The contract of a Consensus under pytest. Subclass `ConsensusContract` and say where yours is."""

from __future__ import annotations

from pathlib import Path

from mzsql.location import Consensus, open_consensus
from mzsql.testing.cases import CONSENSUS_CASES
from mzsql.testing.contract import Contract, add_tests
from mzsql.testing.sites import ConsensusSite, fresh_prefix


class ConsensusContract(Contract):
    """Every case of `CONSENSUS_CASES`, as a ``test_`` method that takes pytest's ``tmp_path``."""

    def open_consensus(self, place: Path) -> Consensus:
        """A handle; two handles of one place see the same logs. Opens `url` through the installed plugins."""
        return open_consensus(self.url(place))

    def site(self, place: Path, seed: int) -> ConsensusSite:
        """A part of the store at ``place`` for one case."""
        return ConsensusSite(
            lambda: self.open_consensus(place),
            url=self._url(place),
            prefix="" if self.fresh else fresh_prefix(),
            directory=place,
            level=self.level,
            seed=seed,
            processes=self.processes,
            opens=open_consensus,
        )


add_tests(ConsensusContract, CONSENSUS_CASES)
