"""What the tests of Spark's side share: environments whose small hydrations run on Spark, as only large ones do by themselves."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from unittest import mock

from mzsql.compute.controller import controller
from mzsql.compute.dependencies import ComputeSettings


@contextlib.contextmanager
def hydrated_by_spark() -> Iterator[None]:
    """Within, whatever this process hydrates is hydrated by Spark, unless `step_engine` says otherwise. Steps run where they always do."""
    settings = functools.partial(ComputeSettings, hydrate_here_bytes=-1)
    with mock.patch.object(controller, "ComputeSettings", settings):
        yield
