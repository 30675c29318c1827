"""What every Blob must do, one plain function for each thing.

Sources: the `Blob` protocol's text, and the suites trusted stores are held to: absent keys, overwrites, sizes of deletions, listings by
prefix past a page, two handles, reopening, threads. What one thread does is exact;
what several do at once is in `mzsql.testing.concurrent`.
"""

from __future__ import annotations

import functools
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from urllib.parse import unquote, urlsplit

from mzsql.location import (
    Adoptable,
    Blob,
    LocationError,
    ManyDeletable,
    RangeReadable,
    SparkReadable,
    UploadSweepable,
    UsageError,
)
from mzsql.testing.contract import Case, case, run_together, skip
from mzsql.testing.expect import expect, expect_equal, expect_raises
from mzsql.testing.sites import BlobSite

CASES: list[Case[BlobSite]] = []

_ODD_KEYS = (
    "a b/c d",
    "ünï/çødé",
    "日本/語",
    "per%20cent/%2F",
    "plus+and&and=",
    "question?mark#hash",
    "quote'double\"back\\slash",
    "semi;colon,comma:star*",
    ".hidden/...dots",
    "Case/KEY",
    "case/key",
    "under_score/under/score",
    "tilde~/brackets[0]/{x}",
    "long/" + "x" * 200,
    "/".join("deep" for _ in range(20)),
    "e\u0301/composed-not",
    "\u00e9/composed",
    "s7d1e/part.parquet",
)
_BAD_KEYS = ("", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", ".", "..", "a\0b")


def listed(blob: Blob, prefix: str) -> dict[str, int]:
    """The listing as a dict; a key listed twice is a failure."""
    found: dict[str, int] = {}
    for key, size in blob.list_keys_and_metadata(prefix):
        expect(key not in found, f"the listing of {prefix!r} has {key!r} twice")
        found[key] = size
    return found


@case(CASES)
def absent(site: BlobSite) -> None:
    """A key that was never set has no value, and deleting it is no error."""
    blob = site.open()
    expect_equal(blob.get("absent/key"), None, "get of an absent key")
    expect_equal(blob.delete("absent/key"), None, "delete of an absent key")
    expect_equal(listed(blob, ""), {}, "listing of a store that is empty")


@case(CASES)
def set_get_overwrite(site: BlobSite) -> None:
    """The last value set is the value, whole, and its size is listed."""
    blob = site.open()
    for value in (b"first", b"second, longer", b"3rd"):
        blob.set("k/1", value)
        found = blob.get("k/1")
        expect_equal(found, value, "get after set")
        expect(type(found) is bytes, f"get answers bytes, found {type(found).__name__}")
        expect_equal(listed(blob, "k/"), {"k/1": len(value)}, "listing after set")


@case(CASES)
def empty_value(site: BlobSite) -> None:
    """An empty value is a value."""
    blob = site.open()
    blob.set("empty", b"")
    expect_equal(blob.get("empty"), b"", "get of an empty value")
    expect_equal(listed(blob, ""), {"empty": 0}, "listing of an empty value")
    expect_equal(blob.delete("empty"), 0, "delete of an empty value")
    expect_equal(blob.get("empty"), None, "get after delete")
    expect_equal(blob.delete("empty"), None, "second delete")


@case(CASES)
def delete_sizes(site: BlobSite) -> None:
    """A deletion tells the size of what it removed, and removes it from gets and listings; the second one finds nothing."""
    blob = site.open()
    blob.set("d/one", b"12345")
    blob.set("d/two", b"1")
    blob.set("d/one", b"1234567")
    expect_equal(blob.delete("d/one"), 7, "delete after an overwrite")
    expect_equal(blob.get("d/one"), None, "get after delete")
    expect_equal(listed(blob, ""), {"d/two": 1}, "listing after delete")
    expect_equal(blob.delete("d/one"), None, "second delete")
    blob.set("d/one", b"again")
    expect_equal(blob.get("d/one"), b"again", "get of a key set again after its deletion")


@case(CASES)
def large_value(site: BlobSite) -> None:
    """Megabytes come back as they went, also past what a store uploads in parts."""
    blob = site.open()
    for megabytes in (5, site.sized(17, 80)):
        value = bytes(range(256)) * (megabytes * 4096)
        blob.set("large", value)
        found = blob.get("large")
        expect(found == value, f"{megabytes} MiB came back changed")
        expect_equal(listed(blob, ""), {"large": len(value)}, "listing of a large value")
    expect_equal(blob.delete("large"), len(value), "delete of a large value")


@case(CASES)
def list_by_prefix(site: BlobSite) -> None:
    """A prefix is a prefix of the key's text, whether or not it ends at a part."""
    blob = site.open()
    keys = ("x/a", "x/ab", "x/b", "xy/a", "y", "z/z/z")
    for key in keys:
        blob.set(key, key.encode())
    for prefix in ("", "x", "x/", "x/a", "x/ab", "x/ab/", "y", "y/", "z/z", "z/z/", "none"):
        wanted = {key: len(key) for key in keys if key.startswith(prefix)}
        expect_equal(listed(blob, prefix), wanted, f"listing of prefix {prefix!r}")


@case(CASES)
def odd_keys(site: BlobSite) -> None:
    """Keys are any text: spaces, signs, other scripts, upper and lower case; each is listed as it was given, and apart from the others."""
    blob = site.open()
    for key in _ODD_KEYS:
        blob.set(key, key.encode())
    for key in _ODD_KEYS:
        expect_equal(blob.get(key), key.encode(), f"get of {key!r}")
        wanted = {other: len(other.encode()) for other in _ODD_KEYS if other.startswith(key)}
        expect_equal(listed(blob, key), wanted, f"listing of prefix {key!r}")
    expect_equal(set(listed(blob, "")), set(_ODD_KEYS), "listing of everything")
    for key in _ODD_KEYS:
        expect_equal(blob.delete(key), len(key.encode()), f"delete of {key!r}")
    expect_equal(listed(blob, ""), {}, "listing after the deletions")


@case(CASES)
def refused_keys(site: BlobSite) -> None:
    """A malformed key is a usage error, for each operation, and touches nothing."""
    blob = site.open()
    blob.set("a/b", b"kept")
    for key in _BAD_KEYS:
        expect_raises(UsageError, f"set of {key!r}", blob.set, key, b"x")
        expect_raises(UsageError, f"get of {key!r}", blob.get, key)
        expect_raises(UsageError, f"delete of {key!r}", blob.delete, key)
    expect_equal(listed(blob, ""), {"a/b": 4}, "listing after refused keys")


@case(CASES)
def ranges(site: BlobSite) -> None:
    """A Blob that reads ranges reads the right ones, cut off at the end."""
    blob = site.open()
    if not isinstance(blob, RangeReadable):
        skip("reads no ranges")
        return
    blob.set("r", b"0123456789")
    for offset, length in (
        (0, 4),
        (0, 10),
        (0, 100),
        (6, 100),
        (3, 1),
        (9, 1),
        (10, 1),
        (20, 5),
        (4, 0),
    ):
        wanted = b"0123456789"[offset : offset + length]
        expect_equal(blob.get_range("r", offset, length), wanted, f"range {offset}+{length}")
    expect_equal(blob.get_range("absent", 0, 1), None, "range of an absent key")
    blob.set("e", b"")
    expect_equal(blob.get_range("e", 0, 1), b"", "range of an empty value")
    value = bytes(range(256)) * 4096 * 9
    blob.set("large", value)
    expect(blob.get_range("large", 8_000_001, 77) == value[8_000_001:8_000_078], "range far in")


@case(CASES)
def two_handles(site: BlobSite) -> None:
    """What one handle did, another sees at once: values, overwrites, deletions and listings."""
    one, two = site.open(), site.open()
    expect_equal(two.get("shared"), None, "get before anything")
    one.set("shared", b"1")
    expect_equal(two.get("shared"), b"1", "get through the other handle")
    expect_equal(listed(two, ""), {"shared": 1}, "listing through the other handle")
    two.set("shared", b"22")
    expect_equal(one.get("shared"), b"22", "get after the other handle's overwrite")
    expect_equal(listed(one, ""), {"shared": 2}, "listing after the other handle's overwrite")
    expect_equal(two.delete("shared"), 2, "delete through the other handle")
    expect_equal(one.get("shared"), None, "get after the other handle's delete")
    expect_equal(listed(one, ""), {}, "listing after the other handle's delete")


@case(CASES)
def reopened(site: BlobSite) -> None:
    """What was set outlives the handle."""
    blob = site.open()
    blob.set("kept/1", b"value")
    blob.set("gone", b"value")
    blob.delete("gone")
    blob.close()
    again = site.open()
    expect_equal(again.get("kept/1"), b"value", "get through a later handle")
    expect_equal(listed(again, ""), {"kept/1": 5}, "listing through a later handle")


@case(CASES)
def list_many(site: BlobSite) -> None:
    """A listing has every key, also past the thousand of an object store's page."""
    blob = site.open()
    keys = [f"many/{number:05}" for number in range(site.sized(1_100, 3_500))]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: blob.set(key, b"v"), keys))
    expect_equal(len(listed(blob, "many/")), len(keys), "number of keys listed")
    expect_equal(set(listed(blob, "many/")), set(keys), "keys listed")
    few = {key: 1 for key in keys if key.startswith("many/0009")}
    expect_equal(listed(blob, "many/0009"), few, "keys listed of a narrow prefix")
    left_early = iter(blob.list_keys_and_metadata("many/"))
    next(left_early)
    del left_early
    seen, gone = 0, set()
    for key, _ in blob.list_keys_and_metadata("many/"):
        if seen % 8 == 0:
            blob.delete(key)
            gone.add(key)
        seen += 1
    expect_equal(seen, len(keys), "keys listed while some are deleted as they come")
    expect_equal(set(listed(blob, "")), set(keys) - gone, "keys listed after that")


@case(CASES)
def list_left_early(site: BlobSite) -> None:
    """A listing that is not read to its end holds nothing up, and one begun before a change breaks nothing."""
    blob = site.open()
    for number in range(20):
        blob.set(f"l/{number}", b"v")
    for _ in range(20):
        unread = iter(blob.list_keys_and_metadata("l/"))
        next(unread)
    blob.set("l/new", b"v")
    blob.delete("l/0")
    rest = {key for key, _ in unread}
    always = {f"l/{number}" for number in range(1, 20)}
    expect(rest <= always | {"l/0", "l/new"}, f"a listing under way shows keys never set: {rest}")
    expect(len(rest & always) >= len(always) - 1, "a listing under way lost keys that stayed")
    expect_equal(set(listed(blob, "l/")), always | {"l/new"}, "a new listing")


@case(CASES)
def closing(site: BlobSite) -> None:
    """Closing twice is no error; a closed handle still works or refuses with a typed error; other handles do not notice."""
    blob, other = site.open(), site.open()
    blob.set("k", b"v")
    blob.close()
    blob.close()
    for act in (lambda: blob.get("k"), lambda: listed(blob, "")):
        try:
            act()
        except (LocationError, UsageError):
            continue
    expect_equal(other.get("k"), b"v", "get through a handle that is open")


@case(CASES)
def delete_many(site: BlobSite) -> None:
    """A Blob that deletes many removes every key given that there is, and no other."""
    blob = site.open()
    if not isinstance(blob, ManyDeletable):
        skip("deletes one at a time")
        return
    keys = [f"m/{number}" for number in range(site.sized(40, 1_200))]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda key: blob.set(key, b"v"), [*keys, "kept"]))
    blob.delete_many(["absent/key", *keys[1:], "absent/too"])
    expect_equal(listed(blob, "m/"), {keys[0]: 1}, "listing of what was not deleted")
    blob.delete_many(keys)
    blob.delete_many([])
    expect_equal(listed(blob, ""), {"kept": 1}, "listing of what is left")
    expect_raises(UsageError, "delete_many of a bad key", blob.delete_many, ["../x"])


@case(CASES)
def unfinished_uploads(site: BlobSite) -> None:
    """A Blob that lists unfinished uploads lists none of finished ones, and giving up one that is gone is no error."""
    blob = site.open()
    if not isinstance(blob, UploadSweepable):
        skip("does not list unfinished uploads")
        return
    before = {one.upload for one in blob.list_unfinished()}
    blob.set("finished", b"value")
    blob.set("large", b"x" * (17 << 20))
    left = [one for one in blob.list_unfinished() if one.upload not in before]
    expect_equal(left, [], "unfinished uploads after writes that finished")
    expect_equal(set(listed(blob, "")), {"finished", "large"}, "listing")


@case(CASES)
def paths_for_spark(site: BlobSite) -> None:
    """A Blob that Spark reads gives a path for each key and prefix, and on this machine's files the object is at that path."""
    blob = site.open()
    if not isinstance(blob, SparkReadable):
        skip("is not read by path")
        return
    blob.set("p/object one.parquet", b"value")
    path = blob.spark_path("p/object one.parquet")
    expect(path.endswith("object one.parquet") or "object%20one" in path, f"path {path!r}")
    expect(path.startswith(blob.spark_path("p")), "the path of a prefix is one of its keys' paths")
    local = _local(path)
    if local is not None:
        expect_equal(local.read_bytes(), b"value", "the file at the path")


@case(CASES)
def adoption(site: BlobSite) -> None:
    """What others wrote by path is adopted: it reads, lists and deletes as if set."""
    blob = site.open()
    if not (isinstance(blob, Adoptable) and isinstance(blob, SparkReadable)):
        skip("adopts nothing written by path")
        return
    local = _local(blob.spark_path("adopted/by path"))
    if local is None:
        skip("its paths are not this machine's files: only a Spark session could write there")
        return
    blob.set("adopted/set", b"12")
    local.parent.mkdir(parents=True, exist_ok=True)
    local.write_bytes(b"by path")
    blob.make_durable(["adopted/by path", "adopted/set"])
    blob.make_durable([])
    expect_equal(blob.get("adopted/by path"), b"by path", "get of what was written by path")
    expect_equal(
        listed(blob, "adopted/"), {"adopted/by path": 7, "adopted/set": 2}, "listing of both"
    )
    expect_raises(LocationError, "adopting nothing", blob.make_durable, ["adopted/no"])
    expect_equal(blob.delete("adopted/by path"), 7, "delete of what was written by path")


def _local(path: str) -> Path | None:
    split = urlsplit(path)
    if split.scheme == "file":
        return Path(unquote(split.path))
    return Path(path) if path.startswith("/") else None


@case(CASES)
def threads_apart(site: BlobSite) -> None:
    """Threads that share a handle and work on keys of their own do not disturb each other."""
    blob = site.open()

    def work(name: int) -> None:
        for step in range(site.sized(6, 60)):
            key, value = f"t/{name}/{step % 3}", b"%d %d " % (name, step) * 100
            blob.set(key, value)
            expect_equal(blob.get(key), value, f"get of thread {name}")
            expect(key in listed(blob, f"t/{name}/"), f"{key!r} is not listed")
            if step % 3 == 2:
                expect_equal(blob.delete(key), len(value), f"delete of thread {name}")

    run_together([functools.partial(work, name) for name in range(8)])
    left = {f"t/{name}/{part}" for name in range(8) for part in (0, 1)}
    expect_equal(set(listed(blob, "t/")), left, "listing in the end")


@case(CASES)
def atomic_overwrites(site: BlobSite) -> None:
    """While a key is overwritten by several threads, every read is one of the values whole."""
    blob, reading = site.open(), site.open()
    values = [bytes([i]) * 300_000 for i in range(4)]
    blob.set("contended/key", values[0])
    rounds = site.sized(10, 60)
    writing = set(range(len(values)))
    torn: list[str] = []

    def read() -> None:
        # As long as anybody writes: any number of reads may be over before the first overwrite.
        while writing:
            seen = reading.get("contended/key")
            if seen not in values:
                torn.append("nothing" if seen is None else f"{len(seen)} bytes, {set(seen)}")

    def write(number: int) -> None:
        try:
            for _ in range(rounds):
                blob.set("contended/key", values[number])
        finally:
            writing.discard(number)

    run_together([read, *(functools.partial(write, number) for number in range(len(values)))])
    expect_equal(torn, [], "reads that were no value whole")
    expect_equal(listed(blob, ""), {"contended/key": 300_000}, "listing in the end")
