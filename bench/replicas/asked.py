"""What the command line says, for the cases."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path

from options import above_0, add_directory, queries, several
from tpch import FEW


@dataclass(frozen=True)
class Asked:
    """How much of each case, and where."""

    scales: tuple[float, ...]
    rounds: int
    pairs: int
    idle: float
    killing: float
    queries: tuple[str, ...]
    hydrations: int
    directory: Path


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark beside those that all have."""
    parser.add_argument(
        "--scales",
        type=several(float, "a scale factor above 0"),
        default=(0.1, 1.0),
        metavar="FACTORS",
        help="scale factors of TPC-H, by commas; cases c and e take the first alone (0.1,1)",
    )
    parser.add_argument(
        "--rounds",
        type=above_0(int, "a number above 0"),
        default=60,
        metavar="N",
        help="transactions of a, and of each of b's stretches; the first third of them warms up (60)",
    )
    parser.add_argument(
        "--pairs",
        type=above_0(int, "a number above 0"),
        default=3,
        metavar="N",
        help="how often case b has a second replica, and then again the first alone (3)",
    )
    parser.add_argument(
        "--idle",
        type=above_0(float, "a number of seconds above 0"),
        default=240.0,
        metavar="S",
        help="for how long case c counts; it waits half as long before that (240)",
    )
    parser.add_argument(
        "--killing",
        type=above_0(float, "a number of seconds above 0"),
        default=300.0,
        metavar="S",
        help="for how long case e kills replicas (300)",
    )
    parser.add_argument(
        "--queries",
        type=queries,
        default=FEW,
        metavar="NUMBERS",
        help="which of TPC-H's 22 queries case d hydrates, by commas (1,3,18)",
    )
    parser.add_argument(
        "--hydrations",
        type=above_0(int, "a number above 0"),
        default=3,
        metavar="N",
        help="how often case d hydrates with each number of executors, after once that warms up (3)",
    )
    add_directory(parser)


def asked(given: argparse.Namespace) -> Asked:
    return Asked(
        scales=given.scales,
        rounds=given.rounds,
        pairs=given.pairs,
        idle=given.idle,
        killing=given.killing,
        queries=given.queries,
        hydrations=given.hydrations,
        directory=given.directory,
    )
