"""What every Blob must do. Subclass `BlobContract`, say how to open yours, and pytest runs it.

class TestMyBlob(BlobContract):
    def url(self, place: Path) -> str:
        return f"mine:{place}"
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mzsql.location import Blob, RangeReadable, UsageError, open_blob
from mzsql.testing.contract import Contract

_KEYS = st.sampled_from(["a", "b/c", "b/d", "b e/ü", "long/" + "x" * 100, "b/c.parquet"])
_STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("set"), _KEYS, st.binary(max_size=64)),
        st.tuples(st.just("delete"), _KEYS, st.just(b"")),
        st.tuples(st.just("get"), _KEYS, st.just(b"")),
        st.tuples(st.just("list"), st.sampled_from(["", "b", "b/", "b/c", "z"]), st.just(b"")),
    ),
    max_size=20,
)


class BlobContract(Contract):
    """The cases of a Blob."""

    def open_blob(self, place: Path) -> Blob:
        """A handle; two handles of one place see the same objects. Opens `url` through the installed plugins."""
        return open_blob(self.url(place))

    @pytest.fixture
    def blob(self, tmp_path: Path) -> Iterator[Blob]:
        """A fresh store."""
        blob = self.open_blob(tmp_path)
        yield blob
        blob.close()

    def test_absent(self, blob: Blob) -> None:
        """A key that was never set has no value."""
        assert blob.get("absent/key") is None
        assert blob.delete("absent/key") is None
        assert list(blob.list_keys_and_metadata("")) == []

    def test_set_get_overwrite(self, blob: Blob) -> None:
        """The last value set is the value."""
        blob.set("k/1", b"first")
        assert blob.get("k/1") == b"first"
        blob.set("k/1", b"second, longer")
        assert blob.get("k/1") == b"second, longer"

    def test_empty_value(self, blob: Blob) -> None:
        """An empty value is a value."""
        blob.set("empty", b"")
        assert blob.get("empty") == b""
        assert list(blob.list_keys_and_metadata("")) == [("empty", 0)]
        assert blob.delete("empty") == 0
        assert blob.delete("empty") is None

    def test_large_value(self, blob: Blob) -> None:
        """Megabytes come back as they went."""
        value = bytes(range(256)) * (20 * 1024)
        blob.set("large", value)
        assert blob.get("large") == value
        assert blob.delete("large") == len(value)

    def test_list_by_prefix(self, blob: Blob) -> None:
        """A prefix is a prefix of the key's text, whether or not it ends at a part."""
        for key in ("x/a", "x/ab", "x/b", "xy/a", "y"):
            blob.set(key, key.encode())
        assert _listed(blob, "x") == {"x/a", "x/ab", "x/b", "xy/a"}
        assert _listed(blob, "x/") == {"x/a", "x/ab", "x/b"}
        assert _listed(blob, "x/a") == {"x/a", "x/ab"}
        assert _listed(blob, "") == {"x/a", "x/ab", "x/b", "xy/a", "y"}
        assert _listed(blob, "z") == set()

    @pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", "../a", "a/../b", "a/./b", "a\0b"])
    def test_refused_keys(self, blob: Blob, key: str) -> None:
        """A malformed key is a usage error and touches nothing."""
        with pytest.raises(UsageError):
            blob.set(key, b"x")
        assert _listed(blob, "") == set()

    def test_ranges(self, blob: Blob) -> None:
        """A Blob that reads ranges reads the right ones."""
        if not isinstance(blob, RangeReadable):
            pytest.skip("reads no ranges")
        blob.set("r", b"0123456789")
        assert blob.get_range("r", 0, 4) == b"0123"
        assert blob.get_range("r", 6, 100) == b"6789"
        assert blob.get_range("r", 10, 1) == b""
        assert blob.get_range("absent", 0, 1) is None

    def test_two_handles(self, blob: Blob, tmp_path: Path) -> None:
        """What one handle did, another sees at once."""
        other = self.open_blob(tmp_path)
        blob.set("shared", b"1")
        assert other.get("shared") == b"1"
        assert other.delete("shared") == 1
        assert blob.get("shared") is None
        other.close()

    def test_atomic_overwrites(self, blob: Blob) -> None:
        """While a key is overwritten by several threads, every read is one of the values whole."""
        values = [bytes([i]) * 50_000 for i in range(4)]
        blob.set("contended/key", values[0])
        torn: list[int] = []
        done = threading.Event()

        def read() -> None:
            while not done.is_set():
                seen = blob.get("contended/key")
                if seen not in values:
                    torn.append(-1 if seen is None else len(seen))

        def write(value: bytes) -> None:
            for _ in range(10):
                blob.set("contended/key", value)

        reader = threading.Thread(target=read)
        writers = [threading.Thread(target=write, args=(value,)) for value in values]
        reader.start()
        for writer in writers:
            writer.start()
        for writer in writers:
            writer.join()
        done.set()
        reader.join()
        assert torn == []
        assert _listed(blob, "") == {"contended/key"}

    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=[
            HealthCheck.function_scoped_fixture,
            HealthCheck.differing_executors,
            HealthCheck.too_slow,
        ],
    )
    @given(steps=_STEPS)
    def test_against_a_dict(self, blob: Blob, steps: list[tuple[str, str, bytes]]) -> None:
        """Any sequence of operations does what it does to a dict."""
        for key in _listed(blob, ""):
            blob.delete(key)
        model: dict[str, bytes] = {}
        for act, key, value in steps:
            if act == "set":
                blob.set(key, value)
                model[key] = value
            elif act == "delete":
                old = model.pop(key, None)
                assert blob.delete(key) == (None if old is None else len(old))
            elif act == "get":
                assert blob.get(key) == model.get(key)
            else:
                found = sorted(blob.list_keys_and_metadata(key))
                assert found == sorted((k, len(v)) for k, v in model.items() if k.startswith(key))


def _listed(blob: Blob, prefix: str) -> set[str]:
    return {key for key, _ in blob.list_keys_and_metadata(prefix)}
