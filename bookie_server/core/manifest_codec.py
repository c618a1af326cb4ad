"""The MANIFEST: the only list of the bookie's files (FORMATS.md#manifest).

The file consists of one line `ledgerlog-manifest 4 <bytes of the body> <CRC32C of the body, 8 hex
digits>` and then the body. The body is one JSON object in ASCII, with sorted keys and without
spaces.
"""

from __future__ import annotations

import json
from collections.abc import Generator
from dataclasses import asdict, dataclass, replace
from enum import Enum
from typing import Any

from bookie_server.core.bookie_run import BookieRun, RunJournal
from bookie_server.core.doubt import NO_DOUBT, Doubt
from bookie_server.core.record import COPIES_FIRST_SEQUENCE, FileIdentity
from bookie_server.errors import (
    REPLACEMENT_ADVICE,
    DamagedDirectoryError,
    FormatVersionError,
)
from ledgerlog_spark.wire.digests import crc32c

MAGIC = "ledgerlog-manifest"
FORMAT_VERSION = 4
FORMAT_VERSIONS_READ = (1, 2, 3, 4)
STATE_BYTES_SINCE = 3
RUN_SINCE = 4
FORMAT_VERSION_BEFORE = 3
"""The version that `ledgerlog bookie downgrade` writes."""
NEW_KEYS = ("directory_id", "path", "journals", "starts", "changes", "previous_id", "doubt")
"""Keys of the newest version besides `run`. The previous version does not have these keys."""
JOURNALS_MAX = 8
"""Maximum number of listed runs with journal files that could not be removed yet."""
NAME = "MANIFEST"


class FileState(Enum):
    """The part of a file that a bookie reads when it starts."""

    OPEN = "open"
    """When the bookie starts, it replays the file from its first record."""
    FINISHED = "finished"
    """When the bookie starts, it reads only the index. Records after `data_end` are never read."""


@dataclass(frozen=True, slots=True)
class FileEntry:
    """The entry of the MANIFEST for one file that holds or will hold records."""

    file_id: int
    slot: str
    salt: str  # 32 hex digits
    state: FileState
    size_bytes: int  # allocated bytes
    first_sequence: int = 0  # sequence of the first record; 0 for a file without records
    last_sequence: int = 0  # sequence of the last valid record; 0 while the file is open
    data_end: int = 0  # first byte after the last valid record; 0 while the file is open
    finish_offset: int = 0  # offset of the finish record; 0 while the file is open
    live_bytes: int = 0  # size of the stored entries that the file's index refers to
    has_damage: bool = False  # whether the file has a damaged record of an unknown ledger

    @property
    def is_copies(self) -> bool:
        """Whether compaction wrote the file. Its records have the sequences 1, 2, 3, ..."""
        return self.state is FileState.FINISHED and self.last_sequence == 0

    @property
    def scan_from(self) -> int:
        """The sequence of the first record of a finished file."""
        return COPIES_FIRST_SEQUENCE if self.is_copies else self.first_sequence

    def holds(self, sequence: int, offset: int) -> bool:
        """Return whether the finished file contains the record with this sequence and offset."""
        return offset < self.data_end if self.is_copies else sequence <= self.last_sequence

    @property
    def identity(self) -> FileIdentity:
        """The identity of the file, which seeds all checksums in the file."""
        return FileIdentity(self.slot, self.file_id, bytes.fromhex(self.salt))


@dataclass(frozen=True, slots=True)
class Manifest:
    """The files of a directory, with counters. A new MANIFEST is valid once it is durable."""

    generation: int = 0
    next_file_id: int = 1  # the id of the next file, which was never used before
    durable_upto: int = 0  # all records up to this sequence are known to be synced
    state_file: str = ""  # name of the ledger-state file; empty before the first file
    check_epoch: int = 0  # number of times that ledger states may have been lost
    files: tuple[FileEntry, ...] = ()  # files in ascending order of id
    free_slots: tuple[str, ...] = ()  # slots whose data is not needed any more
    directory: int = 0  # number of this directory among the bookie's directories
    highest_dropped_ledger_id: int = -1  # largest ledger id with a forgotten tombstone, or -1
    state_bytes: int = 0  # committed bytes of `state_file`; 0 means the whole file (version 1, 2)
    run: BookieRun | None = None  # the current run, or a run that ended without a clean stop
    directory_id: str = ""  # 16 random hex digits; "" until the first commit of version 4
    path: str = ""  # absolute path of the directory; "" until the first commit of this release
    journals: tuple[RunJournal, ...] = ()  # runs that may have journal files; at most JOURNALS_MAX
    starts: int = 0  # number of starts; 0 until the first start of this release
    changes: int = 0  # counter that rises at starts, at clean stops, and while data is stored
    previous_id: str = ""  # `directory_id` before the directory was moved; "" if it was not
    doubt: Doubt = NO_DOUBT  # the possible losses of the directory

    def with_file(self, entry: FileEntry) -> Manifest:
        """Return a copy of the manifest in which `entry` is added or replaces its older entry."""
        others = [file for file in self.files if file.file_id != entry.file_id]
        files = sorted([*others, entry], key=lambda file: file.file_id)
        return replace(self, files=tuple(files))


def manifest_encoding(
    manifest: Manifest, files_per_part: int, version: int = FORMAT_VERSION
) -> Generator[None, None, bytes]:
    """Encode the MANIFEST in parts of `files_per_part` files, and yield between two parts.

    `version` is `FORMAT_VERSION`, or `FORMAT_VERSION_BEFORE` if the MANIFEST has no run.
    """
    texts: list[str] = []
    for start in range(0, len(manifest.files), files_per_part):
        if start:
            yield
        texts += map(_file_text, manifest.files[start : start + files_per_part])
    files = ",".join(texts)
    fields = {name: getattr(manifest, name) for name in Manifest.__slots__ if name != "files"}
    run: BookieRun | None = fields.pop("run")
    new = {name: fields.pop(name) for name in NEW_KEYS}
    if version == FORMAT_VERSION:
        fields["run"] = None if run is None else run.to_json()
        new["journals"] = [asdict(journal) for journal in manifest.journals]
        new["doubt"] = manifest.doubt.to_json()
        fields |= new
    else:
        assert run is None
        fields["mark"] = 0
    before = {name: value for name, value in fields.items() if name < "files"}
    after = {name: value for name, value in fields.items() if name > "files"}
    text = f'{_json(before)[:-1]},"files":[{files}],{_json(after)[1:]}'
    body = text.encode("ascii")
    return f"{MAGIC} {version} {len(body)} {crc32c(body):08x}\n".encode() + body


def _file_text(file: FileEntry) -> str:
    """Return the JSON of one file with sorted keys, faster than `json.dumps`."""
    damage = "true" if file.has_damage else "false"
    return (
        f'{{"data_end":{file.data_end},"file_id":{file.file_id},'
        f'"finish_offset":{file.finish_offset},"first_sequence":{file.first_sequence},'
        f'"has_damage":{damage},"last_sequence":{file.last_sequence},'
        f'"live_bytes":{file.live_bytes},"salt":"{file.salt}","size_bytes":{file.size_bytes},'
        f'"slot":"{file.slot}","state":"{file.state.value}"}}'
    )


def _json(fields: dict[str, Any]) -> str:
    return json.dumps(fields, sort_keys=True, separators=(",", ":"))


def decode_version(data: bytes) -> int:
    """Return the version of a valid MANIFEST."""
    return int(data.split(b" ", 2)[1])


def decode_manifest(data: bytes) -> Manifest:
    """Decode a MANIFEST.

    Raise DamagedDirectoryError if it is damaged, and FormatVersionError if a later release wrote
    it.
    """
    line, _, body = data.partition(b"\n")
    words = line.split(b" ")
    if len(words) != 4 or words[0] != MAGIC.encode():  # noqa: PLR2004 - the words of the line
        raise _damage("its first line is not the first line of a MANIFEST")
    if words[2] != str(len(body)).encode() or words[3] != b"%08x" % crc32c(body):
        raise _damage("the length or the checksum of its body does not match its first line")
    if words[1] not in [str(version).encode() for version in FORMAT_VERSIONS_READ]:
        raise FormatVersionError(
            f"MANIFEST has format version {words[1]!r}, but this program reads versions up to "
            f"{FORMAT_VERSION}; use the program that wrote the MANIFEST, or a later one",
            path=NAME,
            version=words[1].decode("ascii", "replace"),
        )
    version = decode_version(data)
    try:
        manifest = _from_json(json.loads(body), version)
    except (ValueError, TypeError, KeyError) as error:
        raise _damage(f"its fields are not the fields of a MANIFEST ({error})") from None
    if (manifest.state_bytes > 0) != (version >= STATE_BYTES_SINCE):
        raise _damage("its state_bytes do not fit its version")
    return manifest


def _from_json(fields: dict[str, Any], version: int) -> Manifest:
    if version >= RUN_SINCE:
        run = fields.pop("run")
        fields["run"] = None if run is None else BookieRun.from_json(run)
        fields["journals"] = tuple(RunJournal(**journal) for journal in fields.pop("journals", ()))
        fields["doubt"] = Doubt(**fields.pop("doubt", {}))
    else:
        # Earlier versions reserved a number for a journal, and never used it.
        fields.pop("mark", None)
    files = tuple(
        FileEntry(**{**file, "state": FileState(file["state"])}) for file in fields.pop("files")
    )
    free_slots = tuple(fields.pop("free_slots"))
    return Manifest(files=files, free_slots=free_slots, **fields)


def _damage(reason: str) -> DamagedDirectoryError:
    return DamagedDirectoryError(
        f"MANIFEST is damaged: {reason}. Without a valid MANIFEST, the bookie cannot use the files "
        f"of this directory. Keep the files. {REPLACEMENT_ADVICE}",
        path=NAME,
        reason=reason,
    )
