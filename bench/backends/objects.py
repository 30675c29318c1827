"""Case of S3: the Blob against boto3 alone on the same endpoint, by the clock and by the CPU time of this process."""

from __future__ import annotations

import itertools
import math
import random
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any
from urllib.parse import urlsplit

import boto3
from botocore.config import Config
from figures import Case, median, percentile
from mzsql_s3 import Place, S3Blob, place_of
from servers import floor, prefix

MIB = 1024 * 1024
SIZES = {"100 KiB": 100 * 1024, "8 MiB": 8 * MIB, "64 MiB": 64 * MIB}
REPEATS = {"100 KiB": 60, "8 MiB": 30, "64 MiB": 8}
WARM = 3
RANGE = (3 * MIB, MIB)
MANY, LISTED = 1000, 10_000
_OURS, _BARE = "mzsql", "boto3"

Act = Callable[[], object]


@dataclass
class Spent:
    """Seconds by the clock, and of this process's CPUs, of each operation."""

    wall: list[float] = field(default_factory=list)
    cpu: list[float] = field(default_factory=list)


def alternate(
    number: int, contenders: Mapping[str, Sequence[Act]], *, warm: int
) -> dict[str, Spent]:
    """One operation of each in turn, who goes first changing; a contender is what to do first, which does not count, and the act."""
    found = {name: Spent() for name in contenders}
    order = list(contenders)
    for turn in range(warm + number):
        for name in order:
            *before, act = contenders[name]
            for one in before:
                one()
            cpu, begun = time.process_time(), perf_counter()
            act()
            wall, used = perf_counter() - begun, time.process_time() - cpu
            if turn >= warm:
                found[name].wall.append(wall)
                found[name].cpu.append(used)
        order.append(order.pop(0))
    return found


def over(ours: list[float], bare: list[float]) -> float:
    """The median over turns of the ratio of a turn; where the clock of CPU time is too coarse for one turn, of all together."""
    if min(bare) < 0.002:
        return sum(ours) / sum(bare) if sum(bare) else math.nan
    return median([mine / its for mine, its in zip(ours, bare, strict=True)])


def objects(url: str, *, quick: bool) -> Case:
    """Case c."""
    case = Case("c", "objects in S3; boto3 alone on the same endpoint")
    with prefix(url) as below:
        _whole(case, "S3", below, quick=quick)
        _many(case, below, quick=quick)
    with floor() as bare:
        _whole(case, "floor", bare, quick=quick)
    case.notes.append(
        "S3 is the endpoint given, or moto, whose own work is most of each time; floor is a server of the benchmark's that only keeps "
        "bytes, so that the time is nearly all the client's. CPU is of this process, all its threads; the servers are others."
    )
    return case


class _Both:
    """A Blob and boto3's client of one place."""

    def __init__(self, url: str) -> None:
        self.place: Place = place_of(urlsplit(url))
        self.blob = S3Blob(self.place)
        options = self.place.options
        session = boto3.Session(profile_name=options.profile)
        self.client: Any = session.client(
            "s3",
            endpoint_url=options.endpoint,
            region_name=options.region,
            config=Config(s3={"addressing_style": "path" if options.endpoint else "auto"}),
        )

    def put(self, key: str, value: bytes) -> None:
        self.client.put_object(Bucket=self.place.bucket, Key=self.place.object_key(key), Body=value)

    def get(self, key: str, **more: str) -> bytes:
        answer = self.client.get_object(
            Bucket=self.place.bucket, Key=self.place.object_key(key), **more
        )
        found: bytes = answer["Body"].read()
        return found

    def close(self) -> None:
        self.blob.close()
        self.client.close()


def _line(case: Case, where: str, what: str, found: dict[str, Spent]) -> tuple[float, float]:
    ours, bare = found[_OURS], found[_BARE]
    ratios = over(ours.wall, bare.wall), over(ours.cpu, bare.cpu)
    case.row(
        server=where,
        what=what,
        repeats=len(ours.wall),
        p50_ms=median(ours.wall) * 1000,
        boto3_p50_ms=median(bare.wall) * 1000,
        over_boto3=ratios[0],
        p99_ms=percentile(ours.wall, 99) * 1000,
        boto3_p99_ms=percentile(bare.wall, 99) * 1000,
        cpu_ms=sum(ours.cpu) / len(ours.cpu) * 1000,
        boto3_cpu_ms=sum(bare.cpu) / len(bare.cpu) * 1000,
        cpu_over_boto3=ratios[1],
    )
    return ratios


def _whole(case: Case, where: str, url: str, *, quick: bool) -> None:
    both = _Both(url)
    rng = random.Random(7)
    try:
        for name, size in SIZES.items():
            value = rng.randbytes(size)
            repeats = max(3, REPEATS[name] // (6 if quick else 1))
            _puts_and_gets(case, where, both, name, value, repeats)
            if name == "8 MiB":
                _range(case, where, both, value, repeats)
    finally:
        both.close()


def _puts_and_gets(
    case: Case, where: str, both: _Both, name: str, value: bytes, repeats: int
) -> None:
    numbers = itertools.count()

    def put(act: Callable[[str, bytes], object]) -> Sequence[Act]:
        """A new key each time, as blobs have; the one before is gone by then."""
        last = ""

        def clear() -> None:
            nonlocal last
            if last:
                both.blob.delete_many([last]) if where == "S3" else both.blob.delete(last)
            last = f"put/{next(numbers)}"

        return clear, lambda: act(last, value)

    contenders = {_OURS: put(both.blob.set), _BARE: put(both.put)}
    wall, _ = _line(case, where, f"put {name}", alternate(repeats, contenders, warm=WARM))
    if name == "8 MiB":
        case.target(f"{where} put of 8 MiB : boto3", wall, most=1.2)
    # Of each size another, as overwriting is another case.
    mine, its = f"get/mzsql {name}", f"get/boto3 {name}"
    both.blob.set(mine, value)
    both.put(its, value)

    def get(act: Callable[[str], bytes | None], key: str) -> Sequence[Act]:
        found: list[bytes | None] = []

        def check() -> None:
            """That the last one got what was put; and let go of it."""
            if found:
                assert found.pop() == value

        return check, lambda: found.append(act(key))

    contenders = {_OURS: get(both.blob.get, mine), _BARE: get(both.get, its)}
    wall, _ = _line(case, where, f"get {name}", alternate(repeats, contenders, warm=WARM))
    if name == "8 MiB":
        case.target(f"{where} get of 8 MiB : boto3", wall, most=1.2)


def _range(case: Case, where: str, both: _Both, value: bytes, repeats: int) -> None:
    offset, length = RANGE
    asked = f"bytes={offset}-{offset + length - 1}"
    wanted = value[offset : offset + length]

    def check(found: bytes | None) -> None:
        assert found == wanted

    contenders: dict[str, Sequence[Act]] = {
        _OURS: [lambda: check(both.blob.get_range("get/mzsql 8 MiB", offset, length))],
        _BARE: [lambda: check(both.get("get/boto3 8 MiB", Range=asked))],
    }
    found = alternate(repeats, contenders, warm=WARM)
    _line(case, where, "get 1 MiB of 8 MiB", found)


def _many(case: Case, url: str, *, quick: bool) -> None:
    """Deleting and listing many."""
    both = _Both(url)
    try:
        listed = LISTED // 5 if quick else LISTED
        _fill(both, "list", listed)
        below = both.place.object_key("list") + "/"

        def theirs() -> int:
            pages = both.client.get_paginator("list_objects_v2")
            found = pages.paginate(Bucket=both.place.bucket, Prefix=below)
            return sum(len([(one["Key"], one["Size"]) for one in p["Contents"]]) for p in found)

        def check(number: int) -> None:
            assert number == listed

        contenders: dict[str, Sequence[Act]] = {
            _OURS: [lambda: check(len(list(both.blob.list_keys_and_metadata("list/"))))],
            _BARE: [lambda: check(theirs())],
        }
        repeats = 2 if quick else 7
        found = alternate(repeats, contenders, warm=1)
        _line(case, "S3", f"list {listed:,}", found)
        keys = [f"many/{number}" for number in range(MANY)]

        def delete() -> None:
            below = [{"Key": both.place.object_key(key)} for key in keys]
            gone = {"Objects": below, "Quiet": True}
            both.client.delete_objects(Bucket=both.place.bucket, Delete=gone)

        def fill() -> None:
            _fill(both, "many", MANY)

        contenders = {
            _OURS: [fill, lambda: both.blob.delete_many(keys)],
            _BARE: [fill, delete],
        }
        found = alternate(2 if quick else 5, contenders, warm=1)
        _line(case, "S3", f"delete_many of {MANY:,}", found)
    finally:
        both.close()


def _fill(both: _Both, folder: str, number: int) -> None:
    keys = [f"{folder}/{number}" for number in range(number)]
    with ThreadPoolExecutor(4) as pool:
        list(pool.map(lambda key: both.put(key, b"x" * 100), keys))
