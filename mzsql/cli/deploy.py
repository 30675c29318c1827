"""``mzsql deploy``: the deploy generation in charge of an environment, and the promotion of a higher one.

Promise: a promotion is one entry in the catalog; after the command returns, no lower generation commits anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from mzsql.adapter.environment.environment import PROMOTION_SECONDS, Environment
from mzsql.adapter.environment.leader import seems_alive
from mzsql.adapter.environment.locations import locate
from mzsql.adapter.environment.preparations import UNKNOWN, Prepared, Waiting
from mzsql.catalog.state import CatalogState

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
    """Show which deploy generation is in charge, which process runs the dataflows, and of those that wait for which objects each is caught
    up or not, and why.
    """
    with _opened((env, blob, consensus, oracle), None) as found:
        typer.echo(_said(found))
        lease = found.catalog.state.lease
        if lease is not None and seems_alive(lease, found.clock.now_ms()):
            typer.echo(f"process {lease.who} of generation {lease.generation} runs the dataflows")
        else:
            typer.echo("no process runs the dataflows now")
        for prepared in found.preparations.all():
            waiting = prepared.waiting
            if waiting is not None and waiting.generation > found.generation:
                _show(found.catalog.state, prepared, waiting)


def _show(state: CatalogState, prepared: Prepared, waiting: Waiting) -> None:
    """Print the progress of a deployment that waits for promotion, by object."""
    who = f"process {waiting.who}" if prepared.alive else "no process any more"
    typer.echo(f"generation {waiting.generation} (mzsql {prepared.build}) waits, prepared by {who}")
    for item in state.maintained:
        told = prepared.standings.get(item.id, UNKNOWN)
        caught_up = "caught up" if told.caught_up else "not caught up"
        typer.echo(f"  {item.full_name}: {caught_up}: {told.why}")


@deploy_app.command()
def discard(
    env: Env = None, *, blob: Blob = None, consensus: Consensus = None, oracle: Oracle = None
) -> None:
    """Remove what this program has left that was opened beside the one in charge, and is not to be promoted: its plans and arrangements.
    Refused where both are one build, as the plans are those that run, and while a process of it still waits.
    """
    with _opened((env, blob, consensus, oracle), None) as found:
        plans, arrangements = found.preparations.discard()
        typer.echo(f"{plans} plans and {arrangements} arrangements of mzsql {found.build} removed")


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
    wait: Annotated[
        float,
        typer.Option("--wait", min=0.0, help="Seconds to wait until the generation is caught up."),
    ] = PROMOTION_SECONDS,
    now: Annotated[
        bool, typer.Option("--now", help="Promote whether the generation is caught up or not.")
    ] = False,
) -> None:
    """Put a deploy generation in charge, once it is caught up with all views and indexes: its processes begin to write, those of lower ones
    are fenced for good.
    """
    with _opened((env, blob, consensus, oracle), generation) as found:
        later = found.promote(None if now else wait)
        typer.echo(_said(found))
        for name, why in later.items():
            typer.echo(f"  {name}: {why}")
