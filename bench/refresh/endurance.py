"""Case h: very many ticks, with TPC-H's 22 queries as views: whether time, memory and disk stay what they are.

A tick is that of cases a and b: one order of seven lines, read in all views. Compared are the medians of the first and the last tenth
(after a few that warm up), what the process has in memory, mapped files not counted, before and after, and the environment on disk, which
grows by the rows themselves and by what waits to be compacted and collected: so its end is compared with its half.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter

from figures import Case, median, scratch
from meter import Meter
from options import Options
from ticks import tick
from tpch import loaded

#: The last tenth's median over the first's, and what may be added to memory, in GiB.
GROWTH, GIB = 1.2, 1.5
_WARM = 20
_MIB = 1024 * 1024


def endurance(options: Options, meter: Meter) -> Case:
    """At the last scale."""
    scale, number = options.scales[-1], options.ticks
    case = Case("h", f"{number:,} ticks with {len(options.queries)} views at SF {scale:g}")
    with scratch(options.directory) as folder, loaded(folder, scale) as at:
        at.hydrate(options.queries)
        for warm in range(_WARM):
            at.change(tick(warm))
            at.read(options.queries)
        begun_with = _memory()
        tenth = max(1, number // 10)
        took: list[float] = []
        mark = meter.mark()
        for one in range(_WARM, _WARM + number):
            at.change(tick(one))
            begun = perf_counter()
            at.read(options.queries)
            took.append(perf_counter() - begun)
            if len(took) % tenth == 0:
                part = took[-tenth:]
                cost, mark = meter.since(mark), meter.mark()
                case.row(
                    ticks=len(took),
                    p50_ms=median(part) * 1000,
                    cpu_ms=cost.cpu / tenth * 1000,
                    writes_a_tick=(cost.writes + cost.writes_behind) / tenth,
                    memory_MiB=_memory() / _MIB,
                    disk_MiB=_disk(folder / "env") / _MIB,
                )
        memory = (_memory() - begun_with) / (1024 * _MIB)
        at.judge.run(s for one in range(_WARM + number) for s in tick(one))
        at.check(options.queries)
    first, last = median(took[:tenth]), median(took[-tenth:])
    case.target("the last tenth's median over the first's", last / first, most=GROWTH)
    case.target("growth of memory, GiB", memory, most=GIB)
    disk = [row["disk MiB"] for row in case.rows]
    case.target("disk at the end over disk after half", disk[-1] / disk[len(disk) // 2], most=2)
    return case


def _memory() -> int:
    """Bytes in memory that are not a file's."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise SystemExit("case h needs Linux: it reads /proc/self/status")


def _disk(folder: Path) -> int:
    found = 0
    for path in folder.rglob("*"):
        try:
            found += path.stat().st_size if path.is_file() else 0
        except FileNotFoundError:
            continue  # collected meanwhile
    return found
