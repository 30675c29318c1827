"""The command line that the benchmarks share: which cases, whether only a look is wanted, and where what was measured is written."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def parser(about: str | None, letters: str, *, quick: str = "") -> argparse.ArgumentParser:
    """Knows ``--only``, ``--json`` and, where `quick` says what it does, ``--quick``."""
    made = argparse.ArgumentParser(
        description=about, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    made.add_argument("--only", type=_cases(letters), default=[*letters], help="cases, by commas")
    made.add_argument("--json", type=Path, help="write what was measured to this file")
    if quick:
        made.add_argument("--quick", action="store_true", help=quick)
    return made


def _cases(letters: str) -> Callable[[str], list[str]]:
    def cases(text: str) -> list[str]:
        asked = [letter.strip() for letter in text.split(",")]
        if unknown := set(asked) - set(letters):
            raise argparse.ArgumentTypeError(f"no such case: {', '.join(sorted(unknown))}")
        return asked

    return cases


def keep(found: dict[str, Any], given: argparse.Namespace) -> None:
    """Write what was measured where ``--json`` says."""
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1))
