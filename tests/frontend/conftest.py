"""The tables of this room's tests, once for the whole run."""

from __future__ import annotations

import pytest
from worlds_kit import Worlds


@pytest.fixture(scope="session")
def worlds(answers_server) -> Worlds:
    return Worlds(answers_server)
