"""Moves the updates of a view with a refresh schedule to the refreshes at which they take effect.

Promise: `rounded` and `rounded_frame` do for a whole relation of updates, in Arrow and on Spark, what
`RefreshSchedule.round_up` does for one time. Updates after the last refresh never take effect and are left out.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from mzsql.persist import TIME_COLUMN
from mzsql.repr.frontier import MAX_TIMESTAMP
from mzsql.repr.refresh import RefreshSchedule


def rounded(updates: pa.Table, refresh: RefreshSchedule) -> pa.Table:
    """Set the time of each update (`TIME_COLUMN`) to the first refresh at or after it."""
    if not updates.num_rows:
        return updates
    at = updates.schema.get_field_index(TIME_COLUMN)
    times = updates.column(at).to_numpy()
    # A time beyond all others, since NumPy's int64 has no null: a refresh that would be past `MAX_TIMESTAMP` never
    # comes.
    never = np.int64(MAX_TIMESTAMP + 1)
    found = np.full(len(times), never, np.int64)
    for every in refresh.everies:
        ahead = np.mod(np.int64(every.aligned_to) - times, np.int64(every.interval_ms))
        # Compared this way because ``times + ahead`` may overflow.
        fits = times <= never - ahead
        found = np.minimum(found, np.where(fits, times + np.where(fits, ahead, 0), never))
    for moment in refresh.ats:
        found = np.where(times <= moment, np.minimum(found, np.int64(moment)), found)
    made = updates.set_column(at, updates.schema.field(at), pa.array(found, pa.int64()))
    return made.filter(pa.array(found < never))


def rounded_frame(updates: DataFrame, refresh: RefreshSchedule) -> DataFrame:
    """As `rounded`, for a Spark frame."""
    time = F.col(TIME_COLUMN)
    found = [
        time + F.pmod(F.lit(every.aligned_to) - time, F.lit(every.interval_ms))
        for every in refresh.everies
    ]
    found += [F.when(time <= F.lit(at), F.lit(at)) for at in refresh.ats]
    next_one = F.least(*found, F.lit(None).cast("bigint"))
    return updates.withColumn(TIME_COLUMN, next_one.cast("bigint")).where(
        F.col(TIME_COLUMN).isNotNull()
    )
