"""The contract of a timestamp oracle under pytest. Subclass `OracleContract` and say where yours is."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from mzsql.location import TimestampOracle, open_oracle
from mzsql.testing.cases import ORACLE_CASES
from mzsql.testing.contract import Contract, add_tests
from mzsql.testing.sites import OracleSite, fresh_prefix


class OracleContract(Contract):
    """Every case of `ORACLE_CASES`, as a ``test_`` method that takes pytest's ``tmp_path``."""

    def open_oracle(self, place: Path, timeline: str, now: Callable[[], int]) -> TimestampOracle:
        """A handle; two handles of one place and timeline share their timestamps. Opens `url` through the installed plugins."""
        return open_oracle(self.url(place), timeline, now)

    def site(self, place: Path, seed: int) -> OracleSite:
        """Timelines of the store at ``place`` for one case."""
        return OracleSite(
            lambda timeline, now: self.open_oracle(place, timeline, now),
            url=self._url(place),
            prefix="" if self.fresh else fresh_prefix(),
            directory=place,
            level=self.level,
            seed=seed,
            processes=self.processes,
            opens=lambda url: open_oracle(url, "mzsql-kit-opened", lambda: 0),
        )


add_tests(OracleContract, ORACLE_CASES)
