"""Whatever a program gives to a public call of persist: what it can use, or a typed error that says what was expected.

Each argument of each public call is given each kind of junk, with everything else as it should be. The calls are found by looking, so
that one that is new is held to this without being named here.
"""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from junk_kit import JUNK
from persist_model import SCHEMA, updates

from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import PersistClient, Settings
from mzsql.repr.errors import InternalError, SqlError

#: Calls of the engine's own, which take what only it makes.
INTERNAL = {
    ("writer", "renewed"),
    ("reader", "let_go"),
    ("client", "swept"),
    ("client", "tallies"),
    ("client", "unchanged_ms"),
    ("client", "updates"),
}
ROWS = [(1, "a", 1, 1)]
#: Calls about a span of times that was written.
SPANS = ("parts_between", "updates", "small_updates")


class Surface:
    """A client over memory, and one of everything that it gives."""

    def __init__(self) -> None:
        self.client = PersistClient(
            MemBlob(), MemConsensus(), settings=Settings(timeout=2.0), background=False
        )
        self.shard_id = self.client.new_shard_id()
        self.writer, self.reader = self.client.open_shard(self.shard_id, SCHEMA)
        self.writer.compare_and_append(updates(ROWS), expected_upper=0, new_upper=5)
        self.critical = self.client.open_critical_reader(self.shard_id, "holds")
        self.buffered = self.writer.buffered()
        self.batch = self.writer.batch(updates([(2, "b", 5, 1)]), lower=5, upper=6)

    def close(self) -> None:
        self.client.close()

    def good(self, name: str, call: str) -> Any:
        """An argument as it should be, by its name."""
        if name == "updates":
            rows = updates([(2, "b", 5, 1)])
            return {0: rows} if call == "batch_by_worker" else rows
        known: dict[str, Any] = {
            "shard_id": self.shard_id,
            "schema": SCHEMA,
            "key": None,
            "purpose": "",
            "timeout": 1.0,
            "reader_id": "holds",
            "token": None,
            "expected_token": None,
            "batch": self.batch,
            "lower": 0 if call in SPANS else 5,
            "upper": 5 if call in SPANS else 6,
            "expected_upper": 5,
            "new_upper": 6,
            "keys": [],
            "workers": None,
            "past": 3,
            "since": 0,
            "as_of": 0 if call == "listen" else 4,
            "num_splits": 1,
            "rows": 10,
            "size": 10_000,
            "columns": None,
            "filters": None,
            "key_ranges": None,
            "stats": None,
            "consolidate": True,
            "new_since": 0,
            "after": 0,
            "older_than_ms": 0,
            "shard_ids": None,
            "protected": None,
            "delete": False,
            "delete_of_no_shard": False,
            "full": False,
            "all_due": True,
            "beside": False,
            "flush_interval": None,
            "flush_bytes": None,
            "version": "0.1.0",
            "blob": "mem:",
            "consensus": "mem:",
            "settings": None,
            "background": False,
            "registry": None,
            "cache": None,
            "cache_bytes": 1 << 20,
            "cache_memory_bytes": 1 << 20,
            "written": None,
        }
        return known[name]


OWNERS = ("client", "writer", "reader", "critical", "buffered")


def calls() -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Each public call: whose, its name, and the names of its arguments."""
    surface = Surface()
    for owner in OWNERS:
        one = getattr(surface, owner)
        for name in dir(type(one)):
            found = getattr(type(one), name)
            if name.startswith("_") or isinstance(found, property) or not callable(found):
                continue
            if (owner, name) not in INTERNAL:
                yield owner, name, tuple(inspect.signature(getattr(one, name)).parameters)
    surface.close()


CALLS = list(calls())


def outcome(act: Callable[[], object]) -> str | None:
    """What is wrong with how a call ends; None: nothing."""
    try:
        made = act()
        if isinstance(made, Iterator):
            list(itertools.islice(made, 1))
        elif isinstance(made, PersistClient):
            made.close()
    except InternalError as error:
        return f"an internal error: {error}"
    except SqlError as error:
        return None if str(error) else "an error that says nothing"
    except Exception as error:
        return f"{type(error).__name__}: {error}"[:200]
    return None


def test_the_surface_is_seen() -> None:
    assert {
        ("client", "open"),
        ("client", "open_critical_reader"),
        ("writer", "append"),
        ("reader", "snapshot_arrow"),
        ("critical", "release"),
        ("buffered", "push"),
    } <= {(owner, name) for owner, name, _ in CALLS}


@pytest.mark.parametrize(("owner", "name", "arguments"), CALLS, ids=lambda one: str(one))
def test_each_argument_of_each_call_takes_anything(
    owner: str, name: str, arguments: tuple[str, ...]
) -> None:
    wrong: list[str] = []
    for argument in arguments:
        surface = Surface()
        for junk in JUNK:
            given = {one: surface.good(one, name) for one in arguments}
            given[argument] = junk
            call = partial(getattr(getattr(surface, owner), name), **given)
            found = outcome(call)
            if found is not None:
                wrong.append(f"{owner}.{name}({argument}={type(junk).__name__}): {found}")
        surface.close()
    assert not wrong, "\n".join(wrong)
