"""Every transform of the pipeline, by its name."""

from __future__ import annotations

from collections.abc import Iterator

from mzsql.transform import pipeline


def _leaves(stages: tuple[pipeline.Stage, ...]) -> Iterator[pipeline.Transform]:
    for stage in stages:
        if isinstance(stage, pipeline.Transform):
            yield stage
        else:
            yield from _leaves(stage.transforms)


TRANSFORMS = {t.name: t for t in _leaves((*pipeline.LOGICAL, *pipeline.PHYSICAL))}
