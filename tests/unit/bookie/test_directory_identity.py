"""Which directories are accepted as the newest state of a bookie, and what a refusal tells."""

from __future__ import annotations

from dataclasses import replace

import pytest

from bookie_server.core.directory_identity import (
    ACCEPTED,
    DirectoryIdentity,
    compare,
    compare_directory,
    equal_copy,
    identity_of,
    refusal,
)
from bookie_server.core.directory_identity import DirectoryFinding as Found
from bookie_server.core.kept_identity import decode_identity, encode_identity
from bookie_server.core.manifest_codec import Manifest
from bookie_server.errors import (
    DamagedDirectoryError,
    OlderCopyError,
    RetiredBookieError,
    SwappedDirectoryError,
    UncountedDirectoryError,
)
from ledgerlog_spark.errors import LedgerLogError, WireFormatError
from ledgerlog_spark.wire.known_bookie import SIZE_BYTES_MAX, KnownBookie, KnownDirectory

A, B, C = "aa" * 8, "bb" * 8, "cc" * 8
LOCAL = DirectoryIdentity(A, starts=3, changes=9)


def known(directory_id: str = A, changes: int = 9, *, is_retired: bool = False) -> KnownBookie:
    return KnownBookie((KnownDirectory(directory_id, 3, changes),), is_retired)


@pytest.mark.parametrize(
    ("local", "record", "expected"),
    [
        (LOCAL, None, Found.UNRECORDED),
        (DirectoryIdentity(), None, Found.UNRECORDED),
        (LOCAL, known(), Found.OWN),
        (LOCAL, known(changes=8), Found.OWN),  # a crash between the two writes
        (LOCAL, known(changes=10), Found.OLDER_COPY),
        # A larger number of starts proves nothing.
        (replace(LOCAL, starts=99), known(changes=10), Found.OLDER_COPY),
        (LOCAL, known(B), Found.SWAPPED),
        (LOCAL, known(B, changes=1), Found.SWAPPED),
        (LOCAL, known(B, changes=99), Found.SWAPPED),
        (LOCAL, known(is_retired=True), Found.RETIRED),
        (LOCAL, KnownBookie((), is_retired=True), Found.RETIRED),
        (LOCAL, KnownBookie(()), Found.UNRECORDED),
        (DirectoryIdentity(), known(), Found.UNCOUNTED),
        (DirectoryIdentity(A), known(changes=0), Found.UNCOUNTED),
        # The store has the id from before a move.
        (replace(LOCAL, previous_id=B), known(B, changes=8), Found.OWN),
        (replace(LOCAL, previous_id=B), known(B, changes=9), Found.OLDER_COPY),
        (replace(LOCAL, previous_id=B), known(B, changes=10), Found.OLDER_COPY),
        (replace(LOCAL, previous_id=B), known(C, changes=8), Found.SWAPPED),
        (replace(LOCAL, previous_id=B), known(A, changes=9), Found.OWN),
        # The original was started with its old id after the move was recorded.
        (replace(LOCAL, directory_id=B), known(A, changes=8), Found.SWAPPED),
    ],
)
def test_each_case_has_one_finding(
    local: DirectoryIdentity, record: KnownBookie | None, expected: Found
) -> None:
    assert compare(local, record) is expected


def test_only_the_newest_state_and_a_bookie_without_record_are_accepted() -> None:
    assert set(ACCEPTED) == {Found.OWN, Found.UNRECORDED}


def test_a_retired_bookie_is_compared_when_it_comes_back() -> None:
    assert compare_directory(LOCAL, known(is_retired=True)) is Found.OWN
    assert compare_directory(LOCAL, known(changes=10, is_retired=True)) is Found.OLDER_COPY


@pytest.mark.parametrize(
    ("finding", "error_type", "words"),
    [
        (
            Found.OLDER_COPY,
            OlderCopyError,
            ("older copy", "start 3, change 9", "change 12", "starts in doubt"),
        ),
        (Found.SWAPPED, SwappedDirectoryError, (A, B, "mounts")),
        (
            Found.UNCOUNTED,
            UncountedDirectoryError,
            ("bookie downgrade", "before an upgrade"),
        ),
        (
            Found.RETIRED,
            RetiredBookieError,
            ("cookie create /data/b1", "another bookie_id"),
        ),
    ],
)
def test_a_refusal_states_what_happened_and_what_to_do(
    finding: Found, error_type: type[LedgerLogError], words: tuple[str, ...]
) -> None:
    error = refusal(finding, "/data/b1", "bookie-1", LOCAL, known(B, changes=12))
    assert type(error) is error_type
    for word in (*words, "/data/b1"):
        assert word in error.message
    if finding is not Found.OLDER_COPY:
        assert "bookie-1" in error.message
    is_replaced = finding in (Found.SWAPPED, Found.UNCOUNTED)
    assert is_replaced == ("cookie delete bookie-1" in error.message)
    assert error.fields == {
        "path": "/data/b1",
        "bookie_id": "bookie-1",
        "directory_id": A,
        "starts": 3,
        "changes": 9,
        "known_directory_ids": (B,),
        "known_starts": 3,
        "known_changes": 12,
    }


MANIFEST = Manifest(
    generation=7, directory_id=A, path="/data/b\u00fc", starts=3, changes=9, previous_id=B
)


def test_a_downgrade_keeps_the_identity_and_nothing_else() -> None:
    kept = encode_identity(MANIFEST)
    older = Manifest(generation=8, durable_upto=5)
    assert decode_identity(kept, older) == replace(MANIFEST, generation=8, durable_upto=5)
    assert identity_of(decode_identity(kept, older)) == DirectoryIdentity(A, 3, 9, B)


def test_each_damaged_bit_of_a_kept_identity_is_noticed() -> None:
    kept = encode_identity(MANIFEST)
    for bit in range(8 * len(kept)):
        damaged = bytearray(kept)
        damaged[bit // 8] ^= 1 << bit % 8
        with pytest.raises(DamagedDirectoryError):
            decode_identity(bytes(damaged), Manifest())
    for size in range(len(kept)):
        with pytest.raises(DamagedDirectoryError):
            decode_identity(kept[:size], Manifest())


def test_a_directory_without_counters_makes_a_record_without_directories() -> None:
    assert DirectoryIdentity().known() == KnownBookie(())
    assert DirectoryIdentity(A).known() == KnownBookie(())
    assert LOCAL.known() == known()


def test_a_record_reads_back() -> None:
    for record in (known(), known(is_retired=True), KnownBookie(())):
        assert KnownBookie.decode(record.encode()) == record
    assert known().encode() == (
        b'{"directories":[{"changes":9,"directory_id":"'
        + A.encode()
        + b'","doubt_epoch":0,"starts":3}],'
        b'"format":1,"is_retired":false}'
    )


DIRECTORY = '{"changes":9,"directory_id":"aaaaaaaaaaaaaaaa","starts":3}'


def with_directory(old: str, new: str) -> str:
    changed = DIRECTORY.replace(old, new)
    return f'{{"format":1,"is_retired":false,"directories":[{changed}]}}'


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "1",
        "{}",
        "[" * 100_000,
        '{"format":1}',
        '{"format":1,"directories":[],"is_retired":0}',
        '{"format":1,"directories":[],"is_retired":false,"more":1}',
        '{"format":1,"directories":[1],"is_retired":false}',
        '{"format":1,"directories":1,"is_retired":false}',
        with_directory("9", "-1"),
        with_directory("9", "true"),
        with_directory("9", "9.0"),
        with_directory("9", "9" * 5_000),
        with_directory("aa", "x"),
        with_directory(DIRECTORY, ",".join([DIRECTORY] * (SIZE_BYTES_MAX // len(DIRECTORY)))),
    ],
)
def test_other_bytes_are_no_record(text: str) -> None:
    with pytest.raises(WireFormatError, match="not the record"):
        KnownBookie.decode(text.encode())


def test_a_record_of_a_later_release_is_refused_by_its_format() -> None:
    with pytest.raises(WireFormatError, match="format 2, but this release reads format 1"):
        KnownBookie.decode(b'{"format":2,"new":[]}')


@pytest.mark.parametrize(
    ("local", "record", "is_equal"),
    [
        (LOCAL, None, False),
        (LOCAL, known(changes=8), False),
        (LOCAL, known(changes=9), True),
        (LOCAL, known(B, changes=9), False),
        # The second directory of a bookie: the counter of the first one does not matter.
        (LOCAL, KnownBookie((KnownDirectory(B, 3, 9), KnownDirectory(A, 3, 8))), False),
        (LOCAL, KnownBookie((KnownDirectory(B, 3, 8), KnownDirectory(A, 3, 9))), True),
    ],
)
def test_a_record_with_the_same_counter_is_that_of_a_copy(
    local: DirectoryIdentity, record: KnownBookie | None, *, is_equal: bool
) -> None:
    assert (equal_copy("/d", "b", local, record) is not None) == is_equal
