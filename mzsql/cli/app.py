"""The commands of ``mzsql``.

Promise: a user's mistake ends in one error in the format of PostgreSQL's tools and exit code 1 (2 for a wrong command line), never in a
traceback; an internal error says that it is one, and exits with 70. Each statement runs in its own transaction unless BEGIN says otherwise.
"""

from __future__ import annotations

import math
import os
import sys
from pathlib import Path
from typing import Annotated

import typer

import mzsql
from mzsql.cli.deploy import deploy_app
from mzsql.cli.reporting import StatementFailed, report, run_pieces
from mzsql.cli.script import Piece, decoded, expand, script_text
from mzsql.repr.errors import InvalidParameter, SqlError

#: The exit code that shells report for a command ended by SIGPIPE.
_PIPE_CLOSED = 141

app = typer.Typer(
    name="mzsql",
    help="Incrementally maintained, strictly serializable SQL views on Apache Spark.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)

Env = Annotated[
    Path,
    typer.Option("--env", "-e", envvar="MZSQL_ENV", help="The environment's directory."),
]


#: In seconds; every clock accepts waits up to this.
_LONGEST = 1e9


def _number(value: float) -> float:
    """The value, unless it is NaN, which passes any range check."""
    if math.isnan(value):
        raise typer.BadParameter("nan is not a number of anything")
    return value


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"mzsql {mzsql.__version__}")
        raise typer.Exit


CopyPath = Annotated[
    list[Path] | None,
    typer.Option(
        help="A folder in which COPY may read and write files; may be given again. By default everywhere."
    ),
]
NoCopyFiles = Annotated[
    bool, typer.Option("--no-copy-files", help="Have COPY read and write no file of this machine.")
]


@app.callback()
def root(
    *,
    version: Annotated[
        bool,
        typer.Option("--version", callback=_version, is_eager=True, help="Print the version."),
    ] = False,
) -> None:
    """Incrementally maintained, strictly serializable SQL views on Apache Spark."""


@app.command()
def demo(
    *,
    directory: Annotated[
        Path | None,
        typer.Option(help="Where to make the environment; a temporary directory by default."),
    ] = None,
    scale: Annotated[
        float, typer.Option(min=0.001, max=100, callback=_number, help="The scale factor of TPC-H.")
    ] = 0.01,
) -> None:
    """Do the whole job on TPC-H data and tell what happens: load, views, plans, hydration, changes, restart."""
    from mzsql.cli.demo import run_demo  # noqa: PLC0415  a command loads what it needs

    run_demo(directory, scale)


@app.command()
def sql(
    statements: Annotated[
        list[str] | None,
        typer.Argument(help="Statements to run; without any, and without --file, stdin is read."),
    ] = None,
    *,
    env: Env,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", help="A script to run.", exists=True, dir_okay=False),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print rows as CSV.")] = False,
    copy_path: CopyPath = None,
    no_copy_files: NoCopyFiles = False,
) -> None:
    """Run statements in an environment (made if it is not there) and print what they give."""
    if file is not None and statements:
        raise InvalidParameter("give either statements or --file, not both")
    if file is not None:
        pieces = list(expand(script_text(file), file.parent, origin=file.name))
    else:
        text = ";\n".join(statements) if statements else decoded(sys.stdin.buffer.read(), "stdin")
        pieces = list(_typed(text))
    run_pieces(pieces, env, "csv" if csv else "table", confined(copy_path, no_copy_files))


@app.command("open")
def open_(
    *,
    env: Env,
    profile: Annotated[
        bool, typer.Option("--profile", help="Print where the time went, phase by phase.")
    ] = False,
    timeout: Annotated[
        float, typer.Option(min=0, max=_LONGEST, help="Seconds to wait for.", callback=_number)
    ] = 600.0,
) -> None:
    """Open an environment until all that it maintains is taken up, which fills the expression cache, and close it again."""
    from mzsql.cli.opening import open_environment  # noqa: PLC0415  as above

    open_environment(env, profile=profile, timeout=timeout)


@app.command()
def shell(*, env: Env, copy_path: CopyPath = None, no_copy_files: NoCopyFiles = False) -> None:
    r"""Type statements and see what they give; \? there tells what else it knows."""
    from mzsql.cli.shell import run_shell  # noqa: PLC0415

    run_shell(env, confined(copy_path, no_copy_files))


ReplicaEnv = Annotated[
    Path | None,
    typer.Option(
        "--env", "-e", envvar="MZSQL_ENV", help="The environment's directory, or profile:NAME."
    ),
]
ProfileName = Annotated[
    str | None,
    typer.Option(help="Or the profile that names it: where its credentials are, never here."),
]
Listen = Annotated[
    str,
    typer.Option(
        metavar="HOST[:PORT]",
        help="Where to listen for the process that leads; port 0 takes a free one.",
    ),
]
Advertise = Annotated[
    str | None,
    typer.Option(
        metavar="HOST", help="The name that others find this machine by, if it is another."
    ),
]


Master = Annotated[
    str | None,
    typer.Option(
        metavar="URL",
        help="Where Spark's tasks run, as spark-submit has it: local[*], local-cluster[2,1,1024], spark://HOST:7077, yarn, k8s://...",
    ),
]
Conf = Annotated[
    list[str] | None,
    typer.Option(
        metavar="KEY=VALUE",
        help="A setting of Spark, as spark-submit has it; may be repeated. No credentials: others see it.",
    ),
]


@app.command()
def replica(
    *,
    env: ReplicaEnv = None,
    profile: ProfileName = None,
    cluster: Annotated[str, typer.Option(help="The replica's cluster.")],
    name: Annotated[str, typer.Option(help="The replica's name in it.")],
    listen: Listen = "127.0.0.1:0",
    advertise: Advertise = None,
    master: Master = None,
    conf: Conf = None,
    with_stdin: Annotated[
        bool,
        typer.Option(
            "--with-stdin",
            help="End when standard input does: with the program that has started this one.",
        ),
    ] = False,
) -> None:
    """Be a replica of a cluster, a Spark application of its own, until it is dropped, SIGTERM or Ctrl-C."""
    from mzsql.cli.replica import place_of, run_replica  # noqa: PLC0415  as above

    place = place_of(env, profile)
    code = run_replica(
        place,
        cluster,
        name,
        listen,
        advertise,
        with_input=with_stdin,
        master=master,
        conf=conf or (),
    )
    raise typer.Exit(code)


@app.command("serve-replicas")
def serve_replicas(
    *,
    env: ReplicaEnv = None,
    profile: ProfileName = None,
    cluster: Annotated[
        list[str] | None,
        typer.Option(help="Only the replicas of this one; may be repeated. By default of all."),
    ] = None,
    listen: Annotated[
        str, typer.Option(metavar="HOST", help="Where each of them listens.")
    ] = "127.0.0.1",
    advertise: Advertise = None,
    master: Master = None,
    conf: Conf = None,
) -> None:
    """Keep a process running for every replica there is, on this machine, until SIGTERM or Ctrl-C."""
    from mzsql.cli.replica import place_of, settings_in  # noqa: PLC0415  as above
    from mzsql.cli.serve_replicas import serve  # noqa: PLC0415

    settings_in(conf or ())
    passed = [
        *(("--master", master) if master else ()),
        *(w for c in conf or () for w in ("--conf", c)),
    ]
    raise typer.Exit(serve(place_of(env, profile), cluster, listen, advertise, passed))


Directory = Annotated[
    Path | None,
    typer.Argument(metavar="ENV", help="The environment's directory; or give both URLs."),
]
BlobUrl = Annotated[str | None, typer.Option("--blob", help="The Blob store's URL.")]
ConsensusUrl = Annotated[str | None, typer.Option("--consensus", help="The Consensus store's URL.")]


@app.command()
def inspect(
    env: Directory = None,
    *,
    blob: BlobUrl = None,
    consensus: ConsensusUrl = None,
    shard: Annotated[
        str | None,
        typer.Option(help="Show everything of this one: a shard's id, or an object's full name."),
    ] = None,
    csv: Annotated[bool, typer.Option("--csv", help="Print the shards as CSV.")] = False,
    json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show shards: whose they are, frontiers, batches, handles, garbage, what nobody refers to, the cost. Changes nothing."""
    from mzsql.cli.inspect import print_overview, print_shard  # noqa: PLC0415
    from mzsql.cli.place import open_place  # noqa: PLC0415

    if csv and (json or shard is not None):
        raise InvalidParameter("--csv is for the table of all shards, without --json and --shard")
    style = "json" if json else "csv" if csv else "table"
    with open_place(env, blob, consensus) as place:
        name = None if shard is None else place.shard_named(shard)
        code = print_overview(place, style) if name is None else print_shard(place, name, style)
    raise typer.Exit(code)


@app.command()
def maintain(
    env: Directory = None,
    *,
    blob: BlobUrl = None,
    consensus: ConsensusUrl = None,
    shard: Annotated[
        list[str] | None,
        typer.Option(help="Only this one, by id or an object's full name; may be repeated."),
    ] = None,
    full: Annotated[
        bool, typer.Option("--full", help="Merge all batches of a shard into one.")
    ] = False,
    leaks_older_than: Annotated[
        float,
        typer.Option(
            min=0,
            max=1e9,
            callback=_number,
            help="Delete what nobody refers to once this process has seen it so for so many hours, which takes --forever; "
            "with 0 at once: nobody may be writing then. What is younger than the longest write may be about to be appended.",
        ),
    ] = 24.0,
    leaks: Annotated[bool, typer.Option(help="Whether to look for leaked objects at all.")] = True,
    delete_of_no_shard: Annotated[
        bool,
        typer.Option(
            "--delete-of-no-shard",
            help="Delete old objects of unknown shards too: make sure that both URLs belong together.",
        ),
    ] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Change nothing, only look.")] = False,
    forever: Annotated[
        bool, typer.Option("--forever", help="Go on until SIGTERM or Ctrl-C.")
    ] = False,
    interval: Annotated[
        float,
        typer.Option(
            min=0.1, max=_LONGEST, callback=_number, help="Seconds between looks, with --forever."
        ),
    ] = 10.0,
    leaks_interval: Annotated[
        float,
        typer.Option(
            min=1,
            max=_LONGEST,
            callback=_number,
            help="Seconds between searches for leaks, with --forever.",
        ),
    ] = 3600.0,
    timeout: Annotated[
        float,
        typer.Option(
            min=0.1,
            max=_LONGEST,
            callback=_number,
            help="Seconds that the upkeep of one shard may take.",
        ),
    ] = 3600.0,
    json: Annotated[bool, typer.Option("--json", help="Tell of each round as JSON.")] = False,
    metrics_port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Serve metrics for Prometheus there.")
    ] = None,
    metrics_address: Annotated[
        str, typer.Option(help="The address that metrics are served at.")
    ] = "0.0.0.0",  # noqa: S104  scrapers come from other machines; there are no secrets in it
) -> None:
    """Compact shards, collect their garbage and delete what killed writers left, once or as a process of its own."""
    from mzsql.cli.maintain import Rounds, run_maintenance, serve_metrics  # noqa: PLC0415
    from mzsql.cli.place import open_place  # noqa: PLC0415
    from mzsql.persist.location_maintenance import Wanted  # noqa: PLC0415

    rounds = Rounds(forever=forever, interval=interval, leaks_interval=leaks_interval)
    with open_place(env, blob, consensus, background=True) as place:
        if metrics_port is not None:
            serve_metrics(metrics_port, metrics_address)
        wanted = Wanted(
            shard_ids=tuple(place.shard_named(name) for name in shard) if shard else None,
            full=full,
            only_due=forever and not full,
            leaks_older_than_ms=int(leaks_older_than * 3_600_000) if leaks else None,
            delete_of_no_shard=delete_of_no_shard,
            dry_run=dry_run,
            timeout=timeout,
        )
        code = run_maintenance(place, wanted, rounds, "json" if json else "text")
    raise typer.Exit(code)


app.add_typer(
    deploy_app,
    name="deploy",
    help="Which deploy generation is in charge of an environment, and putting another one in charge.",
)

plugins_app = typer.Typer(invoke_without_command=True, rich_markup_mode=None)
app.add_typer(plugins_app, name="plugins")


@plugins_app.callback()
def plugins(
    context: typer.Context,
    *,
    check: Annotated[
        bool,
        typer.Option(
            "--check",
            help="First run the quick kit on every plugin that can be tried with nothing set up.",
        ),
    ] = False,
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Show what is installed, which URLs it serves, and whether it passes its kit; `plugins test URL` runs the kit."""
    if context.invoked_subcommand is not None:
        if check or json:
            raise InvalidParameter(f"give options after {context.invoked_subcommand}")
        return
    from mzsql.cli.plugins import check_all, list_plugins  # noqa: PLC0415  as above

    style = "json" if json else "table"
    if check:
        raise typer.Exit(check_all(style))
    list_plugins(style)


@plugins_app.command("test")
def plugins_test(
    url: Annotated[
        str,
        typer.Argument(
            metavar="URL",
            help="A backend's, or profile:NAME for those of a profile; what it holds is left alone.",
        ),
    ],
    *,
    full: Annotated[
        bool, typer.Option("--full", help="Try much more of everything: minutes, not seconds.")
    ] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of all that the cases choose.")] = 0,
    only: Annotated[
        list[str] | None,
        typer.Option(metavar="blob|consensus|oracle", help="Only this kind; may be repeated."),
    ] = None,
    case: Annotated[
        list[str] | None,
        typer.Option(help="Only this case, as in blob.odd_keys; may be repeated."),
    ] = None,
    speed: Annotated[
        bool, typer.Option(help="Whether to measure each operation, once all cases have passed.")
    ] = True,
    timeout: Annotated[
        float,
        typer.Option(
            min=1,
            max=_LONGEST,
            callback=_number,
            help="Seconds that one case may take before all is given up.",
        ),
    ] = 600.0,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, at the end.")] = False,
) -> None:
    """Run the kit on the backend at URL: every case, what failed and how to run it again, how fast each operation is.

    Exits with 0, or 1 when a case failed, or 2 when the URL cannot be opened. Writes below keys and timelines of its own
    and removes what can be removed.
    """
    from mzsql.cli.plugins import Wanted, test_url  # noqa: PLC0415  as above

    wanted = Wanted(
        full=full,
        seed=seed,
        only=tuple(only or ()),
        cases=tuple(case or ()),
        speed=speed,
        timeout=timeout,
    )
    raise typer.Exit(test_url(url, wanted, "json" if json else "text"))


def _typed(text: str) -> list[Piece]:
    try:
        return list(expand(text, Path(), origin="input"))
    except SqlError as error:
        raise StatementFailed(error, text) from error


def confined(folders: list[Path] | None, none: bool) -> list[Path] | None:
    """The ``copy_paths`` for `mzsql.connect`.

    Raises:
        InvalidParameter: directories are given, and that there be none.
    """
    if folders and none:
        raise InvalidParameter("give either --copy-path or --no-copy-files, not both")
    return [] if none else folders or None


def main() -> None:
    """The entry point of the command ``mzsql``."""
    try:
        try:
            app()
        finally:
            sys.stdout.flush()
    except (Exception, KeyboardInterrupt, SystemExit) as error:
        if _reader_is_gone(error):
            # The interpreter flushes stdout at its end, which would fail as well.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(_PIPE_CLOSED)
        if isinstance(error, SystemExit):
            raise
        sys.exit(report(error))


def _reader_is_gone(error: BaseException) -> bool:
    """Whether the error only means that nobody reads the output any more, as with ``| head -1``."""
    if isinstance(error, StatementFailed):
        error = error.error
    # Typer handles a broken pipe by exiting with a status of its own.
    found = error.__context__ if isinstance(error, SystemExit) else error
    return isinstance(found, BrokenPipeError)
