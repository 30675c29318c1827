"""Streams that are started again where the machine is busy.

Spark gives the Python worker that plans a stream ten seconds to connect, which no setting changes; with several tests beside it, a start
may take longer. The stream then fails before it has read anything, and whoever runs it starts it again.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQuery

TRIES = 5
_LATE = "Python worker failed to connect back"


def run_out(start: Callable[[], StreamingQuery]) -> None:
    """Start a stream and wait for its end; again where its worker was late."""
    for left in reversed(range(TRIES)):
        try:
            start().awaitTermination()
        except StreamingQueryException as error:
            if _LATE not in str(error) or not left:
                raise
        else:
            return
