"""What older versions wrote is read for ever, what newer ones wrote is refused, and damaged bytes are told apart from both."""

from __future__ import annotations

import json
import struct
import zlib
from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from persist_model import SCHEMA, another, counted, expected_at, mem_client, updates

from mzsql.location import Versioned
from mzsql.location.mem import MemBlob, MemConsensus
from mzsql.persist import (
    Batch,
    BlobPart,
    CorruptPart,
    InlinePart,
    KeySpec,
    KeyStats,
    NewerVersion,
    PersistClient,
    SnapshotSplit,
    frames,
)
from mzsql.persist.codec import Entry, decode_entry, decode_state, encode_entry, encode_state
from mzsql.persist.leased_parts import SplitData
from mzsql.persist.state import (
    CriticalHold,
    Expired,
    LeasedReader,
    ShardState,
    StateDiff,
    TraceBatch,
    Writer,
)
from mzsql.persist.transitions import apply_diff
from mzsql.persist.versions import check_version, newer

GOLDEN = Path(__file__).parent / "golden"
SHARD, KEYED, ENDED, WHOLE = (f"s00000000-0000-4000-8000-00000000000{i}" for i in range(1, 5))
HISTORY = [(j, "v" * (j % 3), i, 1) for i in range(9) for j in range(2 if i % 2 else 60)]


def records(name):
    """The pairs in a golden file: key length and value length (big-endian, 4 bytes each), key, value; repeated."""
    data = (GOLDEN / name).read_bytes()
    found, at = [], 0
    while at < len(data):
        of_key, of_value = struct.unpack_from(">II", data, at)
        at += 8
        found.append((data[at : at + of_key].decode(), data[at + of_key : at + of_key + of_value]))
        at += of_key + of_value
    return found


def restored(shard_id, log, objects=None):
    """A client on the stores that the golden files hold."""
    blob, consensus = MemBlob(), MemConsensus()
    consensus._logs[shard_id] = [Versioned(int(seqno), data) for seqno, data in records(log)]
    for key, data in records(objects) if objects else ():
        blob.set(key, data)
    return PersistClient(blob, consensus, background=False)


def test_a_log_with_rollup_and_objects_of_the_first_format():
    client = restored(SHARD, "v1-log.bin", "v1-objects.bin")
    state = client.inspect(SHARD)
    assert (state.seqno, state.since, state.upper, state.next_batch) == (21, 4, 9, 10)
    assert state.critical == {"hold": CriticalHold(4, "t0", "golden")}
    assert [len(b.parts) for b in state.trace] == [1] * 5
    assert state.applier_version == ""
    # The reader and the writer of then have expired; everything else is there, and goes on.
    write, read = client.open_shard(SHARD, SCHEMA)
    assert counted(read.snapshot_arrow(8)) == expected_at(HISTORY, 8)
    write.compare_and_append(updates([(1, "new", 9, 1)]), expected_upper=9, new_upper=10)
    client.maintain(SHARD, full=True)
    assert counted(read.snapshot_arrow(9)) == expected_at([*HISTORY, (1, "new", 9, 1)], 9)
    assert client.inspect(SHARD).applier_version != ""


def test_a_keyed_log_of_the_first_format():
    client = restored(KEYED, "v1-keyed-log.bin", "v1-keyed-objects.bin")
    read = client.open_reader(KEYED)
    assert read.key == KeySpec(("k", "name"), workers=2, additive=("n",))
    found = read.snapshot_arrow(1)
    assert counted(found) == {(1, "a", 5, 1): 1, (2, "b", 7, 1): 1, (3, None, 6, 1): 2}
    assert read.snapshot_arrow(1, key_ranges=[(2, 2)])["name"].to_pylist() == ["b"]


def test_a_tombstone_of_the_first_format():
    client = restored(ENDED, "v1-tombstone-log.bin")
    assert client.inspect(ENDED).finalized
    client.maintain(ENDED)


def test_every_kind_of_entry_of_the_first_format():
    state = None
    for seqno, data in records("v1-whole-log.bin"):
        entry = decode_entry(data, WHOLE, int(seqno))
        state = entry.state if state is None else apply_diff(state, entry.diff)
    assert (state.upper, state.since, state.seqno) == (
        None,
        4,
        len(records("v1-whole-log.bin")) - 1,
    )
    assert list(state.critical) == ["hold"]
    assert len(state.readers) == len(state.writers) == 1
    assert sum(batch.rows for batch in state.trace) == len(HISTORY)


def test_batches_and_splits_of_the_first_format():
    client = restored(SHARD, "v1-log.bin", "v1-objects.bin")
    inline = Batch.from_bytes((GOLDEN / "v1-batch-inline.msgpack").read_bytes())
    assert (inline.lower, inline.upper, inline.rows, inline.blob_keys()) == (9, 10, 2, ())
    moved = Batch.from_bytes((GOLDEN / "v1-batch-blob.msgpack").read_bytes())
    assert (moved.lower, moved.upper, moved.rows) == (9, 10, 200)
    write, read = client.open_shard(SHARD, SCHEMA)
    write.compare_and_append_batch([inline, moved], expected_upper=9, new_upper=10)
    new = [(7, "late", 9, 2), (None, None, 9, -1), *((j, "x" * 20, 9, 1) for j in range(200))]
    assert counted(read.updates(9, 10)) == {(k, v, t): d for k, v, t, d in new}
    data = (GOLDEN / "v1-split.msgpack").read_bytes()
    split = SnapshotSplit.from_bytes(data, blob=client.blob)
    assert counted(split.to_arrow()) == expected_at(HISTORY, 8)


DURABLE = (
    *(KeySpec, KeyStats, InlinePart, BlobPart, Batch, TraceBatch, Writer, LeasedReader),
    *(CriticalHold, Expired, ShardState, StateDiff, Entry, SplitData),
)


def _fields(struct_type):
    return [[f.encode_name, not f.required] for f in msgspec.structs.fields(struct_type)]


@pytest.mark.parametrize("struct_type", DURABLE, ids=lambda t: t.__name__)
def test_durable_structs_only_grow_at_the_end_and_by_defaults(struct_type):
    """A field that was ever written is never renamed, moved or dropped; what is appended has a default."""
    recorded = json.loads((GOLDEN / "fields.json").read_text())[struct_type.__name__]
    config = struct_type.__struct_config__
    found = _fields(struct_type)
    assert found[: len(recorded["fields"])] == recorded["fields"]
    appended = found[len(recorded["fields"]) :]
    assert all(defaulted for _, defaulted in appended)
    assert (config.array_like, config.tag) == (recorded["array_like"], recorded["tag"])
    assert not appended, f"record the appended fields of {struct_type.__name__} in fields.json"


# --- round trips and damage -------------------------------------------------------------------

_times = st.integers(0, 2**62)
_expired = st.builds(Expired, st.integers(0, 2**62), st.integers(0, 2**62), st.text(max_size=12))
_frontiers = st.none() | _times
_names = st.text(max_size=12)
_stats = st.lists(
    st.builds(
        KeyStats, _names, st.none() | st.integers(-9, 9) | _names, st.none() | _names, _times
    ),
    max_size=2,
).map(tuple)
_parts = st.lists(
    st.builds(InlinePart, st.binary(max_size=20), _times, _times, _times, st.integers(0, 2**32 - 1))
    | st.builds(
        BlobPart,
        _names,
        _times,
        _times,
        _times,
        _times,
        st.none() | st.integers(0, 2**32 - 1),
        st.none() | st.integers(0, 9),
        _stats,
    ),
    max_size=3,
).map(tuple)
_batches = st.lists(
    st.builds(TraceBatch, _times, _times, _frontiers, _times, _parts, st.booleans()), max_size=3
).map(tuple)
_readers = st.dictionaries(_names, st.builds(LeasedReader, _frontiers, _times, _times, _times))
_versions = st.sampled_from(["", "0.1.0", "0.1.9"])
_states = st.builds(
    ShardState,
    shard_id=st.just(SHARD),
    seqno=st.just(5),
    walltime_ms=_times,
    schema=st.binary(max_size=9),
    key=st.none() | st.builds(KeySpec, st.just(("k",)), st.integers(1, 9)),
    since=_frontiers,
    upper=_frontiers,
    trace=_batches,
    readers=_readers,
    critical=st.dictionaries(_names, st.builds(CriticalHold, _frontiers, _names)),
    writers=st.dictionaries(_names, st.builds(Writer, _times, _times, _names, _frontiers)),
    rollups=st.dictionaries(_times, _names),
    garbage=st.dictionaries(_times, st.lists(_names, max_size=2).map(tuple)),
    applier_version=_versions,
    expired=st.dictionaries(_names, _expired),
    forgotten=_times,
    ending=st.booleans(),
)
_diffs = st.builds(
    StateDiff,
    seqno=st.just(5),
    walltime_ms=_times,
    since=_frontiers,
    upper=_frontiers,
    added=_batches,
    removed=st.lists(_times, max_size=3).map(tuple),
    readers=st.dictionaries(
        _names, st.none() | st.builds(LeasedReader, _frontiers, _times, _times, _times)
    ),
    rollups=st.dictionaries(_times, st.none() | _names),
    garbage=st.lists(_names, max_size=3).map(tuple),
    applier_version=_versions | st.just(msgspec.UNSET),
    expired=st.dictionaries(_names, st.none() | _expired),
    ending=st.booleans() | st.just(msgspec.UNSET),
)


@settings(max_examples=60, deadline=None)
@given(state=_states, diff=_diffs, version=_versions)
def test_what_is_encoded_is_decoded(state, diff, version):
    assert decode_state(encode_state(state), SHARD, 5, "key") == state
    for entry in (Entry(3, "rollup", diff, version=version), Entry(state=state, version=version)):
        assert decode_entry(encode_entry(entry), SHARD, 5) == entry


def _damaged(data):
    for place in range(len(data)):
        for bit in (0x01, 0x80):
            yield data[:place] + bytes([data[place] ^ bit]) + data[place + 1 :]
    for length in range(len(data)):
        yield data[:length]
    yield data + b"\0"


@pytest.mark.parametrize("name", ["v1-keyed-log.bin", "v1-tombstone-log.bin", "v1-log.bin"])
def test_damaged_entries_are_said_to_be(name):
    shard_id = {"v1-keyed-log.bin": KEYED, "v1-tombstone-log.bin": ENDED, "v1-log.bin": SHARD}[name]
    for seqno, data in records(name):
        for damaged in _damaged(data):
            with pytest.raises((CorruptPart, NewerVersion)):
                decode_entry(damaged, shard_id, int(seqno))


@settings(max_examples=100, deadline=None)
@given(payload=st.binary(max_size=60))
def test_any_payload_with_a_right_checksum_is_an_entry_or_corrupt(payload):
    data = struct.pack(">4sHI", b"mzps", 1, zlib.crc32(payload)) + payload
    try:
        decode_entry(data, SHARD, 0)
        decode_state(data, SHARD, 0, "key")
    except (CorruptPart, NewerVersion):
        pass


def test_a_damaged_rollup_is_said_to_be():
    objects = dict(records("v1-objects.bin"))
    [key] = [key for key in objects if "rollup" in key]
    for damaged in _damaged(objects[key]):
        with pytest.raises((CorruptPart, NewerVersion)):
            decode_state(damaged, SHARD, 19, key)
    client = restored(SHARD, "v1-log.bin", "v1-objects.bin")
    client.blob.set(key, objects[key][:-1])
    with pytest.raises(CorruptPart, match="rollup"):
        client.inspect(SHARD)


@pytest.mark.parametrize(
    ("name", "decode"),
    [
        ("v1-batch-inline.msgpack", Batch.from_bytes),
        ("v1-batch-blob.msgpack", Batch.from_bytes),
        ("v1-split.msgpack", lambda data: SnapshotSplit.from_bytes(data, blob=MemBlob())),
    ],
)
def test_damaged_batches_and_splits_are_refused_or_something_else(name, decode):
    """They carry no checksum of their own, as what carries them has one; no damage is another error than theirs."""
    refused = 0
    for damaged in _damaged((GOLDEN / name).read_bytes()):
        try:
            decode(damaged)
        except CorruptPart:
            refused += 1
    assert refused > 10


def test_damaged_parts_are_said_to_be():
    client = mem_client(inline_bytes=0)
    write, read = client.open_shard(client.new_shard_id(), SCHEMA)
    write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    [ref] = read.parts(0)
    data = client.blob.get(ref.blob_key)
    for damaged in _damaged(data):
        client.blob.set(ref.blob_key, damaged)
        with pytest.raises(CorruptPart):
            ref.to_arrow()
    client.blob.set(ref.blob_key, data)
    assert ref.to_arrow().num_rows == 1


def test_entries_of_another_place_are_refused():
    client = mem_client()
    one, other = (client.open_shard(client.new_shard_id(), SCHEMA)[0] for _ in range(2))
    for time in range(2):
        rows = updates([(1, "a", time, 1)])
        other.compare_and_append(rows, expected_upper=time, new_upper=time + 1)
    log = client.consensus._logs
    first = log[one.shard_id][:1]
    for foreign in (log[other.shard_id][0], log[other.shard_id][2]):
        log[one.shard_id] = [*first, Versioned(1, foreign.data)]
        with pytest.raises(CorruptPart, match="another place"):
            another(client).inspect(one.shard_id)
    log[one.shard_id] = [*first, Versioned(1, b"")]
    with pytest.raises(CorruptPart):
        another(client).open_reader(one.shard_id)
    log[one.shard_id] = [*first, Versioned(1, encode_entry(Entry()))]
    with pytest.raises(CorruptPart, match="empty"):
        another(client).inspect(one.shard_id)


def test_a_missing_rollup_is_said_at_once():
    client = restored(SHARD, "v1-log.bin", "v1-objects.bin")
    [key] = [key for key, _ in client.blob.list_keys_and_metadata("") if "rollup" in key]
    client.blob.delete(key)
    with pytest.raises(Exception, match="is missing from Blob") as caught:
        client.inspect(SHARD, timeout=600)
    assert caught.value.hint


# --- versions ---------------------------------------------------------------------------------


def of_version(client, version, background=False, **options):
    return PersistClient(
        client.blob,
        client.consensus,
        clock=client._context.clock,
        settings=client.settings,
        background=background,
        version=version,
        **options,
    )


def test_an_older_program_refuses_a_shard_a_newer_one_has_changed():
    client = mem_client(rollup_interval=4)
    old, new = of_version(client, "0.1.0"), of_version(client, "0.2.0")
    shard_id = old.new_shard_id()
    write, read = old.open_shard(shard_id, SCHEMA)
    write.compare_and_append(updates([(1, "a", 0, 1)]), expected_upper=0, new_upper=1)
    # The newer one takes over while the older one has the shard open.
    newer_write = new.open_writer(shard_id, SCHEMA)
    newer_write.compare_and_append(updates([(2, "b", 1, 1)]), expected_upper=1, new_upper=2)
    before = client.consensus._logs[shard_id].copy()
    stored = dict(client.blob._objects)
    for act in (
        lambda: write.compare_and_append(None, expected_upper=2, new_upper=3),
        lambda: write.append(updates([(3, "c", 2, 1)]), lower=2, upper=3),
        lambda: read.downgrade_since(1),
        read.heartbeat,
        lambda: read.snapshot_arrow(1),
        lambda: old.open_critical_reader(shard_id, "hold"),
        lambda: old.maintain(shard_id, full=True),
        lambda: old.finalize(shard_id),
        lambda: old.inspect(shard_id),
        lambda: of_version(client, "0.1.7").open_shard(shard_id, SCHEMA),
    ):
        with pytest.raises(NewerVersion, match=r"0\.2\.0") as caught:
            act()
        assert caught.value.hint
    assert client.consensus._logs[shard_id] == before
    assert client.blob._objects == stored
    # A patch release and anything newer go on; what they roll up remembers who was the newest.
    of_version(client, "0.2.9").maintain(shard_id, full=True)
    later = of_version(client, "0.3.0").open_writer(shard_id)
    for upper in range(2, 12):
        later.compare_and_append(None, expected_upper=upper, new_upper=upper + 1)
    assert of_version(client, "0.3.1").inspect(shard_id).applier_version == "0.3.0"
    with pytest.raises(NewerVersion):
        newer_write.fetch_upper()


def test_reading_alone_does_not_take_a_shard_over():
    client = mem_client()
    old, new = of_version(client, "0.1.0"), of_version(client, "0.2.0")
    write, _ = old.open_shard(old.new_shard_id(), SCHEMA)
    assert new.inspect(write.shard_id).applier_version == "0.1.0"
    write.compare_and_append(None, expected_upper=0, new_upper=1)


@pytest.mark.parametrize("takes_over", [True, False])
def test_leases_and_upkeep_do_not_take_a_shard_over(takes_over):
    client = mem_client(rollup_interval=2)
    old, new = of_version(client, "0.1.0"), of_version(client, "0.2.0", takes_over=takes_over)
    write, _ = old.open_shard(old.new_shard_id(), SCHEMA)
    for upper in range(3):
        write.compare_and_append(
            updates([(upper, "a", upper, 1)]), expected_upper=upper, new_upper=upper + 1
        )
    theirs, read = new.open_shard(write.shard_id, SCHEMA)
    read.downgrade_since(1)
    read.heartbeat()
    hold = new.open_critical_reader(write.shard_id, "hold")
    hold.downgrade_since(1)
    hold.release()
    new.maintain(write.shard_id, full=True)
    new.sweep(write.shard_id)
    read.expire()
    assert new.inspect(write.shard_id).applier_version == "0.1.0"
    write.compare_and_append(None, expected_upper=3, new_upper=4)
    old.maintain(write.shard_id, full=True)
    theirs.compare_and_append(None, expected_upper=4, new_upper=5)
    assert new.inspect(write.shard_id).applier_version == ("0.2.0" if takes_over else "0.1.0")
    if takes_over:
        with pytest.raises(NewerVersion):
            write.fetch_upper()
        return
    assert write.fetch_upper() == 5
    new.take_over()
    theirs.compare_and_append(None, expected_upper=5, new_upper=6)
    with pytest.raises(NewerVersion):
        write.fetch_upper()


def test_structs_that_only_a_newer_version_knows_are_refused_as_newer():
    payload = {"diff": {"seqno": 1, "walltime_ms": "tomorrow"}, "version": "9.0.0"}
    for version, error in (("9.0.0", NewerVersion), ("0.1.0", CorruptPart), ("x", CorruptPart)):
        data = frames.frame(msgspec.msgpack.encode({**payload, "version": version}))
        with pytest.raises(error):
            decode_entry(data, SHARD, 1, version="0.1.0")
    rollup = frames.frame(msgspec.msgpack.encode({"applier_version": "1.0", "trace": 7}))
    with pytest.raises(NewerVersion):
        decode_state(rollup, SHARD, 1, "key", version="0.1.0")


@pytest.mark.parametrize(
    ("ours", "wrote", "refused"),
    [
        ("0.1.0", "0.1.9", False),
        ("0.1.0", "0.2.0", True),
        ("0.9.0", "0.10.0", True),
        ("1.0.0", "0.99.0", False),
        ("0.99.0", "1.0.0", True),
        ("0.2.0.dev3", "0.2.0", False),
        ("0.1.0", "", False),
    ],
)
def test_compatible_versions(ours, wrote, refused):
    if refused:
        with pytest.raises(NewerVersion):
            check_version(ours, wrote, "it")
    else:
        check_version(ours, wrote, "it")


def test_versions_are_ordered_by_their_numbers():
    assert newer("0.10.0", "0.9.9")
    assert not newer("0.1.0", "0.1.0")
    with pytest.raises(CorruptPart):
        newer("latest", "0.1.0")
