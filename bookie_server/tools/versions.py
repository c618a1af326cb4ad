"""Writes the MANIFEST of a stopped bookie in another version of the format."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bookie_server.core.manifest_codec import (
    FORMAT_VERSION,
    FORMAT_VERSION_BEFORE,
    FileState,
    decode_version,
)
from bookie_server.errors import (
    CorruptRecordError,
    UncleanDirectoryError,
    UnrepairedDirectoryError,
    WrongDirectoryError,
)
from bookie_server.storage.files.entry_log_file import read_header
from bookie_server.storage.files.finished_scan import scan_finished
from bookie_server.storage.files.manifest import UNCLEAN_NAME
from bookie_server.storage.limbo.repaired import needs_repair
from bookie_server.storage.reading.readings import finish
from bookie_server.tools.cookies import cookie_of

if TYPE_CHECKING:
    from bookie_server.core.manifest_codec import FileEntry, Manifest
    from bookie_server.tools.directory import RestingDirectory


async def rewrite_manifest(directory: RestingDirectory, version: int) -> int:
    """Write the MANIFEST in a version of its format, and return the previous version.

    `version` is `FORMAT_VERSION` or `FORMAT_VERSION_BEFORE`. If the MANIFEST already has this
    version, nothing changes. The new MANIFEST is durable on return.

    Raises:
        UncleanDirectoryError: The bookie did not stop cleanly, so an older version would not find
            its newest entries. Nothing was changed.
        WrongDirectoryError: The bookie has several directories. Nothing was changed.
        UnrepairedDirectoryError: The directory is in doubt, or a ledger is in limbo. An older
            version does not store this state. Nothing was changed.
    """
    assert version in (FORMAT_VERSION, FORMAT_VERSION_BEFORE)
    shared = directory.shared
    before = decode_version(await shared.store.read_manifest())
    if before == version:
        return before
    manifest = directory.manifest
    if version < FORMAT_VERSION:
        _require_one_directory(directory)
        _require_clean_stop(directory)
        _require_no_doubt(directory)
        files = tuple([await _for_older_program(directory, entry) for entry in manifest.files])
        manifest = replace(manifest, files=files)
        await shared.store.keep_identity(manifest)
    directory_id = manifest.directory_id or shared.files.random_bytes(8).hex()

    def compose() -> Manifest:
        return replace(manifest, directory_id=directory_id)

    await shared.store.commit(compose, shared.states, version=version)
    return before


async def _for_older_program(directory: RestingDirectory, entry: FileEntry) -> FileEntry:
    """Return an entry of the MANIFEST in the form for a program without compaction.

    If the index of a file is damaged, such a program treats the records up to `last_sequence` as
    the content of the file. For a file of copies, `last_sequence` is 0, so such a program would
    find no entry in the file. If the MANIFEST marks a file as damaged, the lost entries are already
    repaired. So the file counts as undamaged.
    """
    entry = replace(entry, has_damage=False)
    if not entry.is_copies or entry.slot not in directory.names:
        return entry
    file = directory.finished(entry)
    older = replace(entry, first_sequence=entry.scan_from)
    try:
        record = await finish(read_header(file.handle, file.identity, entry.finish_offset))
    except CorruptRecordError:
        scan = await scan_finished(file)
        return replace(older, last_sequence=scan.last_sequence, has_damage=not scan.is_whole)
    return replace(older, last_sequence=record.sequence - 1)


def _require_one_directory(directory: RestingDirectory) -> None:
    cookie = cookie_of(directory.path)
    if cookie is not None and len(cookie.ledger_directories) > 1:
        raise WrongDirectoryError(
            f"the bookie of {directory.path} has several directories "
            f"({', '.join(cookie.ledger_directories)}), and older versions accept only one. "
            "Nothing was changed",
            path=str(directory.path),
        )


def _require_no_doubt(directory: RestingDirectory) -> None:
    manifest = directory.manifest
    doubt = manifest.doubt
    is_unknown = not doubt.epoch and any(entry.has_damage for entry in manifest.files)
    states = directory.shared.states.values()
    if is_unknown or not doubt.is_over or any(needs_repair(state, doubt) for state in states):
        raise UnrepairedDirectoryError(
            f"{directory.path} may have lost entries, and an older version would deny them. Start "
            "the bookie, wait until the metric ledgers_in_limbo and the metric in_doubt are 0, "
            "stop it with SIGTERM, then run this command again",
            path=str(directory.path),
        )


def _require_clean_stop(directory: RestingDirectory) -> None:
    is_clean = (
        directory.manifest.run is None
        and UNCLEAN_NAME not in directory.names
        and not any(directory.entries(FileState.OPEN))
    )
    if not is_clean:
        raise UncleanDirectoryError(
            f"the bookie of {directory.path} did not stop cleanly, so its newest entries may be in "
            "files that an older version does not read. Start the bookie, stop it with SIGTERM, "
            "then run this command again",
            path=str(directory.path),
        )
