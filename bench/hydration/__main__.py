"""What it costs a hydration that its replica tells how far each node is.

    python bench/hydration                                   # 22 views of TPC-H at SF 0.1 and 1, 12 pairs
    python bench/hydration --scales 0.01 --pairs 4           # a quick look
    python bench/hydration --scales 0.1 --json found.json --directory /path/on/the/disk

bench/README.md says what each case is. A line at the end says whether its targets were met; the exit code says nothing about that.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).resolve().parents[2]
# The table of a case is that of bench/persist, TPC-H's environment that of bench/refresh.
sys.path += [str(_ROOT / "bench/persist"), str(_ROOT / "bench/refresh")]

# Found only once the folders are known.
# isort: off
import command  # noqa: E402
import options  # noqa: E402
import told  # noqa: E402
from figures import machine, run_cases, scratch, shown  # noqa: E402
# isort: on


def main() -> None:
    parser = command.parser(__doc__, "a")
    options.add_queries(parser)
    options.add_scales(parser)
    options.add_directory(parser)
    parser.add_argument(
        "--pairs",
        type=options.above_0(int, "a number above 0"),
        default=12,
        metavar="N",
        help="hydrations with telling and as many without, beside those that warm up (12)",
    )
    given = parser.parse_args()
    with scratch(given.directory) as folder:
        about: dict[str, Any] = machine(folder)
    print("; ".join(f"{name} {shown(value)}" for name, value in about.items()))
    cases = {"a": lambda: told.told(given.scales, given.queries, given.pairs, given.directory)}
    done = run_cases(given.only, cases)
    found = {"machine": about, "scales": given.scales, "pairs": given.pairs, "cases": done}
    command.keep(found, given)


if __name__ == "__main__":
    main()
