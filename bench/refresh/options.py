"""What the command line says, for the cases."""

from __future__ import annotations

import argparse
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import gettempdir
from typing import TypeVar

from tpch import ALL

N = TypeVar("N", int, float)


@dataclass(frozen=True)
class Options:
    """How much of each case, where, and whether Spark takes part."""

    scales: tuple[float, ...]
    queries: tuple[str, ...]
    rounds: int
    batches: int
    views: tuple[int, ...]
    ticks: int
    seconds: float
    groups: tuple[int, ...]
    directory: Path
    spark: bool
    step_engine: str


def add_directory(parser: argparse.ArgumentParser) -> None:
    """Where everything is made."""
    parser.add_argument(
        "--directory",
        type=folder,
        default=Path(gettempdir()),
        metavar="DIR",
        help="an existing directory, on a disk, below which everything is made (the temporary one)",
    )


def add_scales(parser: argparse.ArgumentParser) -> None:
    """How much data."""
    parser.add_argument(
        "--scales",
        type=several(float, "a scale factor above 0"),
        default=(0.1, 1.0),
        metavar="FACTORS",
        help="scale factors of TPC-H, by commas; growth is from the first to the last (0.1,1)",
    )


def add_queries(parser: argparse.ArgumentParser) -> None:
    """Which views."""
    parser.add_argument(
        "--queries",
        type=queries,
        default=ALL,
        metavar="NUMBERS",
        help="which of TPC-H's 22 queries, by commas, where a case has all of them (all)",
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    """The options of this benchmark beside those that all have."""
    add_scales(parser)
    add_queries(parser)
    parser.add_argument(
        "--rounds",
        type=above_0(int, "a number above 0"),
        default=60,
        metavar="N",
        help="transactions of a, b, e and of g alone; the first third of them warms up (60)",
    )
    parser.add_argument(
        "--batches",
        type=above_0(int, "a number above 0"),
        default=20,
        metavar="N",
        help="transactions of c, d and k, of a share of the orders each; two more warm up (20)",
    )
    parser.add_argument(
        "--views",
        type=several(int, "a number of views above 0"),
        default=(3, 1000),
        metavar="NUMBERS",
        help="how many views case e has, by commas (3,1000)",
    )
    parser.add_argument(
        "--ticks",
        type=above_0(int, "a number above 0"),
        default=10_000,
        metavar="N",
        help="transactions of case h (10000)",
    )
    parser.add_argument(
        "--seconds",
        type=above_0(float, "a number of seconds above 0"),
        default=300.0,
        metavar="S",
        help="how long case j goes on (300)",
    )
    parser.add_argument(
        "--groups",
        type=several(int, "a number of rows above 0"),
        default=(100_000, 1_000_000, 10_000_000),
        metavar="NUMBERS",
        help="how many rows the groups of case l have, by commas (100000,1000000,10000000)",
    )
    add_directory(parser)
    parser.add_argument(
        "--step-engine",
        choices=("auto", "duckdb", "spark"),
        default="auto",
        help="what runs the steps of c and d (auto)",
    )
    parser.add_argument(
        "--no-spark", action="store_true", help="leave out what Spark would be started for"
    )


def options(given: argparse.Namespace) -> Options:
    return Options(
        scales=given.scales,
        queries=given.queries,
        rounds=given.rounds,
        batches=given.batches,
        views=given.views,
        ticks=given.ticks,
        seconds=given.seconds,
        groups=given.groups,
        directory=given.directory,
        spark=not given.no_spark,
        step_engine=given.step_engine,
    )


def above_0(kind: Callable[[str], N], what: str) -> Callable[[str], N]:
    def one(text: str) -> N:
        try:
            value = kind(text)
        except ValueError:
            value = kind("0")
        if not 0 < value < float("inf"):
            raise argparse.ArgumentTypeError(f"{what} is wanted, not {text!r}")
        return value

    return one


def several(kind: Callable[[str], N], what: str) -> Callable[[str], tuple[N, ...]]:
    one = above_0(kind, what)
    return lambda text: tuple(one(part.strip()) for part in text.split(","))


def queries(text: str) -> tuple[str, ...]:
    views = [f"q{part.strip()}" for part in text.split(",")]
    if unknown := set(views) - set(ALL):
        raise argparse.ArgumentTypeError(
            f"no query of TPC-H: {', '.join(sorted(one[1:] for one in unknown))}"
        )
    return tuple(one for one in ALL if one in views)


def folder(text: str) -> Path:
    path = Path(text)
    if not path.is_dir() or not os.access(path, os.W_OK):
        raise argparse.ArgumentTypeError(f"no directory that can be written: {text}")
    return path.absolute()
