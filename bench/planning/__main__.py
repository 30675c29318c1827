"""What planning takes: from a text to its physical plan, in a warm process, beside sqlglot's optimizer and Spark's.

    python bench/planning                         # all cases, about three minutes
    python bench/planning --quick                 # a quick look
    python bench/planning --only a --json found.json
    python bench/planning --only a --no-spark     # without Spark
    python bench/planning --only f --against ../other-checkout

bench/README.md says what each case is. A line at the end of each says whether its targets were met; the exit code says nothing about it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import ExitStack, closing
from pathlib import Path
from tempfile import gettempdir
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
# The table of a case is that of bench/persist, the catalog that of the frontend's tests.
sys.path += [str(_ROOT / folder) for folder in ("bench/persist", "tests/frontend")]

# Found only once the folders are known.
# isort: off
import command  # noqa: E402
import grown  # noqa: E402
from against import Spark, Sqlglot  # noqa: E402
from figures import Case, machine, median, percentile, rounds, run_cases, scratch, shown, timed  # noqa: E402
from other import beside  # noqa: E402
from warehouse import Warehouse, tpch_queries, tpch_schema  # noqa: E402
# isort: on

LETTERS = "abcdef"
#: What a query of TPC-H and a view over fifty views may take.
QUERY_MS = 60
CHAIN_S = 1.0
CHAIN = 50
NODES = 2000
#: More than this is more than quadratic, whatever a timing's noise.
QUADRATIC = 2.1
#: More than this is more than linear, whatever a timing's noise.
LINEAR = 1.3
#: What takes less than this in all is not looked at: it is noise.
LEAST_S = 0.05


def main() -> None:
    parser = command.parser(__doc__, LETTERS, quick="few repeats: only a look")
    parser.add_argument("--no-spark", action="store_true", help="case a without Spark")
    parser.add_argument("--against", type=Path, help="the checkout that case f compares with")
    given = parser.parse_args()
    if given.against is None:
        if given.only == ["f"]:
            parser.error("case f compares with another checkout: --against says where it is")
        given.only = [letter for letter in given.only if letter != "f"]
    found = run(given.only, quick=given.quick, spark=not given.no_spark, against=given.against)
    command.keep(found, given)


def run(
    letters: list[str], *, quick: bool, spark: bool, against: Path | None = None
) -> dict[str, Any]:
    """Measure and print; everything for JSON."""
    with scratch(Path(gettempdir())) as folder:
        about: dict[str, Any] = machine(folder)
        print("; ".join(f"{name} {shown(value)}" for name, value in about.items()))
        cases: dict[str, Callable[[], Case]] = {
            "a": lambda: queries(folder, quick=quick, spark=spark),
            "b": lambda: chain(quick=quick),
            "c": lambda: growth(quick=quick),
            "d": lambda: nesting(quick=quick),
            "e": lambda: width(quick=quick),
            "f": lambda: beside(against or _ROOT, quick=quick),
        }
        done = run_cases(letters, cases)
    return {"machine": about, "quick": quick, "cases": done}


def queries(folder: Path, *, quick: bool, spark: bool) -> Case:
    """Each query of TPC-H, whoever is compared taking turns."""
    case = Case("a", "the 22 queries of TPC-H, from text to physical plan, ms")
    number = 5 if quick else 31
    with ExitStack() as stack:
        warehouse = stack.enter_context(closing(Warehouse(tpch_schema())))
        planners: dict[str, Callable[[str], Any]] = {
            "mzsql": warehouse.plan,
            "sqlglot": Sqlglot(warehouse).plan,
        }
        if spark:
            planners["spark"] = stack.enter_context(closing(Spark(warehouse, folder))).plan
        texts = tpch_queries()
        for text in texts.values():  # everyone is warm before anyone is measured
            for plan in planners.values():
                plan(text)
        ratios: dict[str, list[float]] = {name: [] for name in planners}
        slowest = 0.0
        for name, text in texts.items():
            contenders = {who: _planning(plan, text) for who, plan in planners.items()}
            found = rounds(number, contenders, warm=3)
            ms = {who: median(values) * 1000 for who, values in found.items()}
            slowest = max(slowest, ms["mzsql"])
            for who, value in ms.items():
                ratios[who].append(ms["mzsql"] / value)
            case.row(
                query=name,
                mzsql=ms["mzsql"],
                mzsql_p95=percentile(found["mzsql"], 95) * 1000,
                sqlglot=ms["sqlglot"],
                over_sqlglot=ratios["sqlglot"][-1],
                spark=ms.get("spark"),
                over_spark=ratios["spark"][-1] if spark else None,
            )
    for who in planners:
        if who != "mzsql":
            case.notes.append(f"median of the ratios to {who}: {median(ratios[who]):.2f}")
    case.target("the slowest query's median, ms", slowest, most=QUERY_MS)
    return case


def _planning(plan: Callable[[str], Any], text: str) -> Callable[[], float]:
    return lambda: timed(lambda: plan(text))


def chain(*, quick: bool) -> Case:
    """A query of a view over views over views."""
    case = Case("b", "a view over chained views, from text to physical plan, s")
    number = 3 if quick else 9
    for views in (CHAIN // 4, CHAIN // 2, CHAIN, CHAIN * 2):
        with closing(Warehouse(grown.chained_views(views))) as warehouse:
            text = f"SELECT k, a, count(*) FROM v{views} WHERE b > 3 GROUP BY k, a"

            def cold(warehouse: Warehouse = warehouse, text: str = text) -> None:
                warehouse.forget()
                warehouse.plan(text)

            first = [timed(cold) for _ in range(number)]
            again = [
                timed(lambda text=text, warehouse=warehouse: warehouse.plan(text))
                for _ in range(number)
            ]
            case.row(
                views=views,
                views_planned_before=median(again),
                no_view_planned_before=median(first),
            )
            if views == CHAIN:
                case.target(f"over {CHAIN} views", median(again), most=CHAIN_S)
                case.target(f"over {CHAIN} views and these themselves", median(first), most=CHAIN_S)
    return case


def growth(*, quick: bool) -> Case:
    """Plans of a few hundred to two thousand nodes, transform by transform."""
    case = Case("c", "optimizing generated plans, s; growth: x where n times the nodes take n^x")
    number = 1 if quick else 3
    worst, slowest = 0.0, "-"
    with closing(Warehouse(grown.SCHEMA)) as warehouse:
        for shape, text in grown.SHAPES.items():
            before: tuple[int, dict[str, float]] | None = None
            for size in (NODES // 4, NODES // 2, NODES):
                nodes, seconds = grown.by_transform(warehouse, text(size), number)
                steepest, name = 0.0, "-"
                if before is not None:
                    times = nodes / before[0]
                    found = {
                        one: grown.exponent(before[1][one], seconds[one], times)
                        for one in seconds
                        if one != "all" and one in before[1] and seconds[one] >= LEAST_S
                    }
                    if found:
                        name = max(found, key=lambda one: found[one])
                        steepest = found[name]
                    growth_of_all = grown.exponent(before[1]["all"], seconds["all"], times)
                    if size == NODES and steepest > worst:
                        worst, slowest = steepest, f"{name}, {shape}"
                most = max((s, one) for one, s in seconds.items() if one != "all")
                case.row(
                    shape=shape,
                    nodes=nodes,
                    seconds=seconds["all"],
                    growth=None if before is None else growth_of_all,
                    longest=f"{most[1]} {shown(most[0])}",
                    steepest=name if before is None else f"{name} {shown(steepest)}",
                )
                before = nodes, seconds
    case.target(f"growth of the steepest transform ({slowest})", worst, most=QUADRATIC)
    return case


def nesting(*, quick: bool) -> Case:
    """Subqueries in subqueries."""
    case = Case("d", "nested subqueries, from text to physical plan, s")
    number = 1 if quick else 3
    texts = {"SELECT (SELECT …)": grown.subqueries, "IN (SELECT … IN …)": grown.memberships}
    with closing(Warehouse(grown.SCHEMA)) as warehouse:
        for name, text in texts.items():
            before = 0.0
            for depth in (16, 32, 64, 128):
                query = text(depth)
                seconds = median(
                    [timed(lambda query=query: warehouse.plan(query)) for _ in range(number)]
                )
                case.row(
                    text=name,
                    depth=depth,
                    seconds=seconds,
                    growth=grown.exponent(before, seconds, 2) if before else None,
                )
                before = seconds
    return case


def width(*, quick: bool) -> Case:
    """A query of very many columns, CPU time of its planning, of its statement's rendering and of writing that."""
    case = Case("e", "SELECT c0 + 0, c1 + 1, …, CPU s")
    number = 1 if quick else 5
    before: tuple[int, dict[str, float]] | None = None
    for columns in (250, 500, 1000, 2000):
        with closing(Warehouse(grown.wide_table(columns))) as warehouse:
            found = grown.by_stage(warehouse, grown.wide_query(columns), number)
        all_of_it = sum(found.values())
        growth = None
        if before is not None:
            growth = grown.exponent(sum(before[1].values()), all_of_it, columns / before[0])
        case.row(columns=columns, **found, all=all_of_it, growth=growth)
        before = columns, found
    assert growth is not None
    case.target("growth from 1,000 to 2,000 columns", growth, most=LINEAR)
    return case


if __name__ == "__main__":
    main()
