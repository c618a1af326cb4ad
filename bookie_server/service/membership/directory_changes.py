"""Adds empty directories to a bookie, and removes lost directories.

A new directory gets its cookie and its first MANIFEST. Then the other directories get the new
cookie. Finally, one transaction writes the cookie and the bookie's record into the metadata store.
After an interruption, the next start completes the change. The new directory gets the doubt of the
other directories, so an expansion begins no new epoch of doubt.

Before a directory is removed, a new epoch of doubt begins in all other directories, because ledgers
may be lost. Then these directories get the new cookie, and the metadata store gets the cookie and a
record without the removed directory. So the directory is never accepted again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from bookie_server.core.directory_identity import FoundOutside, identity_of
from bookie_server.core.manifest_codec import Manifest
from bookie_server.ports import FileSystem
from bookie_server.service.membership.cookie_check import (
    COOKIE_FILE,
    CheckedCookie,
    write_atomically,
)
from bookie_server.service.membership.directory_record import DirectoryRecord
from bookie_server.storage.directories.losses import joined_doubt
from bookie_server.storage.files.manifest import ManifestStore, initialize_directory
from ledgerlog_spark.errors import StartupError
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.model import Version
from ledgerlog_spark.wire.cookie import Cookie
from ledgerlog_spark.wire.known_bookie import KnownBookie, KnownDirectory


async def add_directories(
    known: KnownBookies, checked: CheckedCookie, directories: Sequence[FileSystem]
) -> None:
    """Add the directories `checked.added` to a bookie. All its directories are locked.

    Raises:
        StartupError: The bookie was never started with this release, so it has no record, or
            another directory of the bookie is not in its newest state.
        MetadataVersionError: Another process has changed the cookie or the record.
    """
    bookie_id = checked.cookie.bookie_id
    added = [each for each in directories if Path(each.path) in checked.added]
    others = [each for each in directories if each not in added]
    manifests = [await manifest_of(each) for each in others]
    identities = [identity_of(manifest) for manifest in manifests]
    found = await known.read(bookie_id)
    advice = f"first start it once without {', '.join(each.path for each in added)}"
    if found is None or not all(identity.changes for identity in identities):
        raise StartupError(f"bookie {bookie_id} was never started with this release; {advice}")
    record = DirectoryRecord(known, bookie_id, [each.path for each in others])
    for outside in await record.check(identities):
        if outside.loss:
            raise StartupError(f"{outside.loss}; {advice}")
    doubt = joined_doubt(manifest.doubt for manifest in manifests)
    news = []
    for directory in added:
        write_atomically(Path(directory.path) / COOKIE_FILE, checked.cookie.encode())
        first = Manifest(directory_id=directory.random_bytes(8).hex(), changes=1, doubt=doubt)
        await initialize_directory(directory, first)
        identity = identity_of(await manifest_of(directory))
        news.append(KnownDirectory(identity.directory_id, identity.starts, identity.changes))
    _write_cookies(checked.cookie, others)
    await known.write_with_cookie(
        bookie_id,
        KnownBookie((*found.value.directories, *news)),
        found.version,
        checked.cookie.encode(),
        checked.version,
    )


def removal(
    checked: CheckedCookie, directories: Sequence[FileSystem]
) -> tuple[Cookie, Version] | None:
    """If directories are removed, write the new cookie into the remaining directories.

    Return the change for `DirectoryRecord.begin`, which completes the removal. The new epoch of
    doubt is already durable in the remaining directories.
    """
    if not checked.removed:
        return None
    assert checked.version is not None, "the store has the cookie with the removed directories"
    _write_cookies(checked.cookie, directories)
    return checked.cookie, checked.version


def found_removal(checked: CheckedCookie, found: FoundOutside) -> FoundOutside:
    """Return `found`. If directories are removed, the result contains a reason for the loss."""
    if not checked.removed:
        return found
    removed = f"the directory {', '.join(checked.removed)} was removed"
    return replace(found, loss=found.loss or removed)


def _write_cookies(cookie: Cookie, directories: Sequence[FileSystem]) -> None:
    for directory in directories:
        write_atomically(Path(directory.path) / COOKIE_FILE, cookie.encode())


async def manifest_of(directory: FileSystem) -> Manifest:
    """Return the MANIFEST of a directory."""
    return await ManifestStore(directory).read(await directory.names())
