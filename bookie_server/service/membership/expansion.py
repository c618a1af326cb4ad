"""Adds empty directories to a bookie that has others.

A new directory gets its cookie and its first MANIFEST. Then the other directories get the new
cookie. At last, one transaction writes the cookie and the bookie's record into the metadata store.
After an interruption, the next start does the rest. The new directory has the doubt of the others,
so an expansion raises no doubt.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from bookie_server.core.directory_identity import identity_of
from bookie_server.core.manifest_codec import Manifest
from bookie_server.ports import FileSystem
from bookie_server.service.membership.cookie_check import (
    COOKIE_FILE,
    CheckedCookie,
    write_atomically,
)
from bookie_server.service.membership.directory_record import DirectoryRecord
from bookie_server.storage.files.manifest import ManifestStore, initialize_directory
from ledgerlog_spark.errors import StartupError
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.wire.known_bookie import KnownBookie, KnownDirectory


async def add_directories(
    known: KnownBookies, checked: CheckedCookie, directories: Sequence[FileSystem]
) -> None:
    """Add the directories `checked.added` to a bookie. All its directories are locked.

    Raises:
        StartupError: No start of this release has written the bookie's record.
        DirectoryIdentityError: Another directory of the bookie is not its newest state.
        MetadataVersionError: Another process has changed the cookie or the record.
    """
    bookie_id = checked.cookie.bookie_id
    added = [each for each in directories if Path(each.path) in checked.added]
    others = [each for each in directories if each not in added]
    manifests = [await manifest_of(each) for each in others]
    identities = [identity_of(manifest) for manifest in manifests]
    found = await known.read(bookie_id)
    if found is None or not all(identity.changes for identity in identities):
        raise StartupError(
            f"bookie {bookie_id} was never started with this release. First start it once without "
            f"{', '.join(each.path for each in added)}"
        )
    await DirectoryRecord(known, bookie_id, [each.path for each in others]).check(identities)
    news = []
    for directory in added:
        write_atomically(Path(directory.path) / COOKIE_FILE, checked.cookie.encode())
        first = Manifest(directory_id=directory.random_bytes(8).hex(), changes=1)
        await initialize_directory(directory, first)
        identity = identity_of(await manifest_of(directory))
        news.append(KnownDirectory(identity.directory_id, identity.starts, identity.changes))
    for directory in others:
        write_atomically(Path(directory.path) / COOKIE_FILE, checked.cookie.encode())
    await known.write_with_cookie(
        bookie_id,
        KnownBookie((*found.value.directories, *news)),
        found.version,
        checked.cookie.encode(),
        checked.version,
    )


async def manifest_of(directory: FileSystem) -> Manifest:
    """Return the MANIFEST of a directory."""
    return await ManifestStore(directory).read(await directory.names())
