"""Reads and replaces the MANIFEST, together with the ledger-state file that it names."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import replace

from bookie_server.core.ledger_state import (
    LedgerState,
    decode_ledger_states,
    encode_ledger_states,
)
from bookie_server.core.manifest_codec import NAME, Manifest, decode_manifest, encode_manifest
from bookie_server.errors import (
    REPLACEMENT_ADVICE,
    DamagedDirectoryError,
    DiskFullError,
    SyncFailedError,
)
from bookie_server.ports import FileSystem
from ledgerlog_spark.errors import StartupError

NEW_NAME = "MANIFEST.new"
STATE_PREFIX = "ledgers-"
SLOT_PREFIX = "slot-"
UNCLEAN_NAME = "UNCLEAN"


FIRST_GENERATION = 1


async def initialize_directory(files: FileSystem) -> None:
    """Write the first MANIFEST, durably, unless there is one.

    For a directory that is known to be new: from then on a missing MANIFEST is damage. Safe to
    repeat after a crash at any moment.

    Raises:
        DamagedDirectoryError: There are entry-log files: the directory is not new.
        StorageError: The device failed, or has no room.
    """
    # A killed process may have left a renamed MANIFEST that only the page cache holds.
    await files.sync_directory()
    names = await files.names()
    if NAME in names:
        return
    if any(name.startswith(SLOT_PREFIX) for name in names):
        raise _missing_manifest()
    await ManifestStore(files).commit(Manifest(), ())


def is_first_manifest(data: bytes) -> bool:
    """Whether a MANIFEST is one that `initialize_directory` wrote, before any start used it."""
    try:
        manifest = decode_manifest(data)
    except StartupError:
        return False
    return manifest.generation == FIRST_GENERATION and not manifest.files


class ManifestStore:
    """The durable MANIFEST of one directory.

    Attributes:
        current: As it is on the device.
    """

    def __init__(self, files: FileSystem) -> None:
        self._files = files
        self.current = Manifest()

    async def load(self, names: list[str]) -> list[LedgerState]:
        """Read MANIFEST and ledger states.

        Raises:
            DamagedDirectoryError: Either is missing or damaged.
            FormatVersionError: A later version wrote it.
        """
        if NAME not in names:
            raise _missing_manifest()
        self.current = decode_manifest(await self._read(NAME))
        name = self.current.state_file
        if name not in names:
            raise DamagedDirectoryError(
                f"the ledger-state file {name!r} that the MANIFEST names does not exist; it holds "
                f"keys and fences. Bring it back. {REPLACEMENT_ADVICE}",
                path=name,
                reason="missing",
            )
        return decode_ledger_states(await self._read(name), name)

    async def commit(self, manifest: Manifest, states: Iterable[LedgerState]) -> None:
        """Replace the MANIFEST in one step; durable on return.

        Args:
            manifest: Its generation and state file are set here.
            states: Of all ledgers, in rising order of id; written to a new file first.

        Raises:
            DiskFullError: Nothing changed.
            TooManyFilesError: Nothing changed.
            SyncFailedError: The old or the new one counts; which is not known.
        """
        generation = self.current.generation + 1
        state_file = f"{STATE_PREFIX}{generation:010d}"
        manifest = replace(manifest, generation=generation, state_file=state_file)
        await self._write(state_file, encode_ledger_states(generation, states))
        # Names become durable in any order: the state file's has to be before a MANIFEST names it.
        await self._files.sync_directory()
        await self._write(NEW_NAME, encode_manifest(manifest))
        await self._files.rename(NEW_NAME, NAME)
        try:
            await self._files.sync_directory()
        except DiskFullError as error:
            # The new one may count already: to go on as if it did not would overwrite its state.
            raise SyncFailedError(f"{error.message}, after the rename", path=NAME) from error
        old, self.current = self.current.state_file, manifest
        if old:
            with contextlib.suppress(DiskFullError):  # a start removes it
                await self._files.remove(old)

    async def remove_strays(self) -> None:
        """Remove what the MANIFEST does not name: left over from a crash, and free."""
        named = {self.current.state_file, *self.current.free_slots}
        named |= {entry.slot for entry in self.current.files}
        for name in await self._files.names():
            is_ours = name.startswith((SLOT_PREFIX, STATE_PREFIX)) or name == NEW_NAME
            if is_ours and name not in named:
                await self._files.remove(name)

    async def remove_slot(self, name: str) -> None:
        """Remove a slot that the durable MANIFEST does not name."""
        assert name not in self.current.free_slots
        assert all(entry.slot != name for entry in self.current.files)
        await self._files.remove(name)

    async def mark_unclean(self) -> None:
        """Leave the unclean marker; durable on return."""
        await self._write(UNCLEAN_NAME, b"")
        await self._files.sync_directory()

    async def unmark_unclean(self) -> None:
        """Take the unclean marker away, after everything else is durable."""
        await self._files.remove(UNCLEAN_NAME)
        await self._files.sync_directory()

    async def _read(self, name: str) -> bytes:
        file = await self._files.open(name)
        try:
            return await file.read(0, await file.size())
        finally:
            await file.close()

    async def _write(self, name: str, data: bytes) -> None:
        file = await self._files.open(name, create=True)
        try:
            await file.truncate(0)
            await file.write(0, (data,))
            await file.datasync()
        finally:
            await file.close()


def _missing_manifest() -> DamagedDirectoryError:
    return DamagedDirectoryError(
        "there is no MANIFEST, which lists the files that count; bring all files of the directory "
        f"back. {REPLACEMENT_ADVICE}",
        path=NAME,
        reason="missing",
    )
