"""The contract of a Blob under pytest. Subclass `BlobContract`, say where yours is, and pytest runs every case.

class TestMyBlob(BlobContract):
    def url(self, place: Path) -> str:
        return f"mine:{place}"
"""

from __future__ import annotations

from pathlib import Path

from mzsql.location import Blob, open_blob
from mzsql.testing.cases import BLOB_CASES
from mzsql.testing.contract import Contract, add_tests
from mzsql.testing.sites import BlobSite, fresh_prefix


class BlobContract(Contract):
    """Every case of `BLOB_CASES`, as a ``test_`` method that takes pytest's ``tmp_path``."""

    def open_blob(self, place: Path) -> Blob:
        """A handle; two handles of one place see the same objects. Opens `url` through the installed plugins."""
        return open_blob(self.url(place))

    def site(self, place: Path, seed: int) -> BlobSite:
        """A part of the store at ``place`` for one case."""
        return BlobSite(
            lambda: self.open_blob(place),
            url=self._url(place),
            prefix="" if self.fresh else fresh_prefix(),
            directory=place,
            level=self.level,
            seed=seed,
            processes=self.processes,
            opens=open_blob,
        )


add_tests(BlobContract, BLOB_CASES)
