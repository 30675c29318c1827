"""A file can be read in one sitting."""

from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
_MOST_LINES = 600


@pytest.mark.parametrize("folder", ["mzsql", "plugins", "bench", "examples"])
def test_no_file_is_long(folder: str) -> None:
    files = [path for path in (ROOT / folder).rglob("*.py") if ".venv" not in path.parts]
    assert files
    lines = {
        path.relative_to(ROOT).as_posix(): len(path.read_text().splitlines()) for path in files
    }
    assert {path: count for path, count in lines.items() if count > _MOST_LINES} == {}
