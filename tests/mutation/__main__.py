"""Faults in the code that the tests of every day have to notice.

python tests/mutation --room persist --count 10 --seed 1
python tests/mutation --room oracle --only skew.py --show
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from mutation_run import (
    ROOMS,
    ROOT,
    Verdict,
    copy_of,
    faults_in,
    judged,
    known_survivors,
    reason_of,
)


def main() -> int:
    """The command; 1 where a fault went unnoticed that the ledger does not have."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--room", choices=[*ROOMS, "all"], default="all", help="where to plant")
    parser.add_argument("--count", type=int, default=10, help="so many faults in each room")
    parser.add_argument("--seed", type=int, default=0, help="decides which faults")
    parser.add_argument("--only", default="", help="only in files whose path contains this")
    parser.add_argument(
        "--seconds", type=float, default=1800, help="how long the tests of a fault may take"
    )
    parser.add_argument("--show", action="store_true", help="list the faults, plant none")
    options = parser.parse_args()
    rooms = [*ROOMS] if options.room == "all" else [options.room]
    unnoticed = 0
    with tempfile.TemporaryDirectory() as directory:
        copy = copy_of(ROOT, Path(directory) / "copy")
        for room in rooms:
            faults = faults_in(copy, ROOMS[room], options.seed, options.count, options.only)
            if options.show:
                for fault in faults:
                    print(f"{fault.path}:{fault.line}: {fault.operator}: {fault.text}")
                continue
            known = known_survivors()
            verdicts = judged(
                copy, faults, ROOMS[room], seconds=options.seconds, told=print, known=known
            )
            unnoticed += _run(room, verdicts, known)
    return 1 if unnoticed else 0


def _run(room: str, verdicts: Iterable[Verdict], known: Mapping[tuple[str, str, str], str]) -> int:
    noticed = reasoned = unnoticed = 0
    began = time.monotonic()
    for verdict in verdicts:
        fault, took = verdict.fault, time.monotonic() - began
        began = time.monotonic()
        where = f"{fault.path}:{fault.line}: {fault.operator}"
        reason = reason_of(fault, known)
        if verdict.noticed_by is not None:
            noticed += 1
            print(f"noticed   {where}: {verdict.noticed_by} ({took:.0f} s)", flush=True)
        elif reason is not None:
            reasoned += 1
            print(f"excused   {where}: {reason} ({took:.0f} s)", flush=True)
        else:
            unnoticed += 1
            print(f"UNNOTICED {where} ({took:.0f} s)\n{verdict.change}", flush=True)
    print(f"{room}: {noticed} noticed, {reasoned} excused, {unnoticed} unnoticed", flush=True)
    return unnoticed


if __name__ == "__main__":
    sys.exit(main())
