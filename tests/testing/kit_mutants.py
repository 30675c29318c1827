"""Backends with one planted fault each, as a plugin: ``mutant:NAME:PATH``. The kit must catch every one of them."""

from __future__ import annotations

from collections.abc import Callable

import blob_mutants  # noqa: F401 - fills the table
import consensus_mutants  # noqa: F401 - fills the table
import oracle_mutants  # noqa: F401 - fills the table
from mutants_table import BLOB, CAUGHT_BY, CONSENSUS, ORACLE

from mzsql.location import InvalidUrl, hookimpl, url_options

__all__ = ["CAUGHT_BY"]


def _named(url, mutants):
    if url.scheme != "mutant":
        return None, ""
    name, _, path = url.path.partition(":")
    mutant = mutants.get(name)
    if mutant is not None and not hasattr(mutant, "any_option"):
        url_options(url, ())
    elif mutant is not None and url.query and not mutant.any_option:
        raise InvalidUrl(f"{url.geturl()}: there are no options")
    return mutant, path


@hookimpl
def mzsql_open_blob(url):
    mutant, path = _named(url, BLOB)
    return mutant(path) if mutant else None


@hookimpl
def mzsql_open_consensus(url):
    mutant, path = _named(url, CONSENSUS)
    return mutant(path) if mutant else None


@hookimpl
def mzsql_open_oracle(url, timeline: str, now: Callable[[], int]):
    mutant, path = _named(url, ORACLE)
    return mutant(path, timeline, now) if mutant else None
