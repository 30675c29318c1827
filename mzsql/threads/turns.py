"""How long a thread keeps the interpreter from others that want it.

Python lets a thread that computes go on for 5 ms before another one gets its turn. A step gives the interpreter away with each of its calls
of Arrow, NumPy or DuckDB, some dozens of them in less than 10 ms, and gets it back only after such a turn of whoever plans a query
meanwhile. So the process that a view's steps and its readers share takes shorter turns.
"""

from __future__ import annotations

import sys

#: Python's own.
_USUAL_SECONDS = 0.005
#: Less than a tenth of a small step, which takes some 10 ms.
_SHORT_SECONDS = 0.0005


def take_short_turns() -> None:
    """Have the threads of this process take turns of half a millisecond, unless it has chosen how long theirs are
    (`sys.setswitchinterval`).
    """
    if sys.getswitchinterval() == _USUAL_SECONDS:
        sys.setswitchinterval(_SHORT_SECONDS)
