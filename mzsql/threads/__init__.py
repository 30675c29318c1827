"""Threads that do not die in silence.

Promise: every thread that works for as long as its owner lives runs under a `Supervisor`. What its work raises, expected or not, is logged
once, shown by `Supervisor.statuses` (``mz_internal.mz_threads``) and counted for Prometheus; the work is begun anew after a pause that
doubles up to a bound, and whoever waits on it is told of each change. What no new beginning can help (an exit of the interpreter, an error
that the owner names) ends the thread for good: it stays in sight as failed, and `Supervised.check` raises `ThreadFailed` for whoever asks.
Trade-off: work is begun anew on the same thread, so that a process that can start no more threads recovers as well; a call that does not
return is not seen here: backends end their calls by timeouts of their own.
"""

from mzsql.threads.alarms import ALARMS, Deadlines
from mzsql.threads.priority import give_way, plainly
from mzsql.threads.supervisor import (
    PROCESS,
    Backoff,
    Clock,
    Supervised,
    Supervisor,
    ThreadStatus,
)
from mzsql.threads.turns import take_short_turns
from mzsql.threads.waiting import Wakeup, wait_until_due

__all__ = [
    "ALARMS",
    "PROCESS",
    "Backoff",
    "Clock",
    "Deadlines",
    "Supervised",
    "Supervisor",
    "ThreadStatus",
    "Wakeup",
    "give_way",
    "plainly",
    "take_short_turns",
    "wait_until_due",
]
