"""What the contracts of all three protocols have in common: where the backend is opened, and what it is said not to do."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar


class Contract:
    """Says how the backend under test is opened and what it cannot do.

    ``place`` is a directory that is the same for all handles of one test and fresh for each test. A backend that lives elsewhere may
    answer the same URL for every place: the cases keep to keys and timelines of their own, so they find nothing of each other.
    """

    processes: ClassVar[bool] = True
    """Whether handles that different processes open by one URL are of one store. `False` only for what lives in a process's memory."""

    fresh: ClassVar[bool] = False
    """Whether each place is a store of its own, which nobody else uses: the cases then work at its root, not below a prefix."""

    not_met: ClassVar[Mapping[str, str]] = {}
    """Cases known to fail, by name without ``test_``, each with the reason; one that passes after all fails the run."""

    def url(self, place: Path) -> str:
        """The URL of the backend under test."""
        raise AssertionError(f"{type(self).__name__}.url must say where to open a backend: {place}")
