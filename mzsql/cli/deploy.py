"""``mzsql deploy``: which deploy generation is in charge of an environment, and putting a higher one in charge.

Promise: a promotion is one entry in the catalog; once the command has returned, nothing of a lower generation is committed any more.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from mzsql.adapter.environment.environment import Environment
from mzsql.adapter.environment.leader import seems_alive
from mzsql.adapter.environment.locations import locate

deploy_app = typer.Typer(no_args_is_help=True, rich_markup_mode=None)

Env = Annotated[
    Path | None,
    typer.Argument(
        metavar="ENV", help="The environment's directory or profile:NAME; or give the URLs."
    ),
]
Blob = Annotated[str | None, typer.Option("--blob", help="The Blob store's URL.")]
Consensus = Annotated[str | None, typer.Option("--consensus", help="The Consensus store's URL.")]
Oracle = Annotated[
    str | None,
    typer.Option("--oracle", help="The oracle's URL, where that is another place than Consensus."),
]


@contextmanager
def _opened(
    urls: tuple[Path | None, str | None, str | None, str | None], generation: int | None
) -> Iterator[Environment]:
    env, blob, consensus, oracle = urls
    locations = locate(env, blob=blob, consensus=consensus, oracle=oracle, create=False)
    found = Environment.open(
        locations, read_only=generation is None, deploy_generation=generation, create=False
    )
    try:
        yield found
    finally:
        found.close()


def _said(env: Environment) -> str:
    deployment = env.catalog.state.deployment
    if deployment is None:
        return "generation 0 is in charge: none was ever promoted"
    at = datetime.fromtimestamp(deployment.promoted_at / 1000, UTC)
    return f"generation {deployment.generation} is in charge, promoted by {deployment.who} at {at:%Y-%m-%d %H:%M:%S} UTC"


@deploy_app.command()
def status(
    env: Env = None, *, blob: Blob = None, consensus: Consensus = None, oracle: Oracle = None
) -> None:
    """Show which deploy generation is in charge, and which process runs the dataflows."""
    with _opened((env, blob, consensus, oracle), None) as found:
        typer.echo(_said(found))
        lease = found.catalog.state.lease
        if lease is not None and seems_alive(lease, found.clock.now_ms()):
            typer.echo(f"process {lease.who} of generation {lease.generation} runs the dataflows")
        else:
            typer.echo("no process runs the dataflows now")


@deploy_app.command()
def discard(
    env: Env = None, *, blob: Blob = None, consensus: Consensus = None, oracle: Oracle = None
) -> None:
    """Remove what this program has left that was opened beside the one in charge, and is not to be promoted: its plans in the cache. Where
    both are one build they are shared: the one in charge makes them again at its next start.
    """
    with _opened((env, blob, consensus, oracle), None) as found:
        removed = found.cache.remove_build()
        typer.echo(f"{removed} plans of mzsql {found.build} removed")


@deploy_app.command()
def promote(
    env: Env = None,
    *,
    generation: Annotated[
        int,
        typer.Option(
            "--generation", "-g", min=0, help="The deploy generation to be put in charge."
        ),
    ],
    blob: Blob = None,
    consensus: Consensus = None,
    oracle: Oracle = None,
) -> None:
    """Put a deploy generation in charge: its processes begin to write, those of lower ones are fenced for good."""
    with _opened((env, blob, consensus, oracle), generation) as found:
        found.promote()
        typer.echo(_said(found))
