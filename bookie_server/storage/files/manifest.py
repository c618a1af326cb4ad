"""Reads and replaces the MANIFEST, together with the ledger-state file that it names."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import replace
from functools import partial

from bookie_server.core.kept_identity import NAME as IDENTITY_NAME
from bookie_server.core.kept_identity import decode_identity, encode_identity
from bookie_server.core.ledger_state import (
    FORMAT_VERSION as STATES_VERSION,
)
from bookie_server.core.ledger_state import (
    FORMAT_VERSION_BEFORE as STATES_BEFORE,
)
from bookie_server.core.ledger_state import (
    HeldLedgers,
    decode_states,
    decode_states_of_version_1,
    encode_states,
)
from bookie_server.core.manifest_codec import (
    FORMAT_VERSION,
    NAME,
    RUN_SINCE,
    Manifest,
    decode_manifest,
    decode_version,
    manifest_encoding,
)
from bookie_server.errors import (
    REPLACEMENT_ADVICE,
    DamagedDirectoryError,
    DiskFullError,
    SyncFailedError,
)
from bookie_server.ports import File, FileSystem
from bookie_server.storage.slices import UNITS_PER_TURN, run_in_slices
from ledgerlog_spark.errors import StartupError

NEW_NAME = "MANIFEST.new"
STATE_PREFIX = "ledgers-"
SLOT_PREFIX = "slot-"
_STATE_NAME = re.compile(r"ledgers-[0-9]{10,}")
_SLOT_NAME = re.compile(r"slot-[0-9]{8,}")
UNCLEAN_NAME = "UNCLEAN"
IDENTITY_NEW_NAME = "IDENTITY.new"
FIRST_GENERATION = 1


def is_slot_name(name: str) -> bool:
    """Return whether a bookie gives this name to entry-log files."""
    return _SLOT_NAME.fullmatch(name) is not None


def is_state_name(name: str) -> bool:
    """Return whether a bookie gives this name to ledger-state files."""
    return _STATE_NAME.fullmatch(name) is not None


async def initialize_directory(files: FileSystem, first: Manifest | None = None) -> None:
    """Write and sync the first MANIFEST of a new directory, unless a MANIFEST exists.

    If the directory has lost its data, or is added to the other directories of a bookie, the caller
    passes the MANIFEST to write as `first`.

    The caller must be certain that the directory is new: in any other directory, a missing MANIFEST
    is damage. If the directory has entry-log files but no MANIFEST, raise DamagedDirectoryError.
    After a crash, a second call is safe.
    """
    # A killed process may have left a renamed MANIFEST only in the page cache.
    await files.sync_directory()
    names = await files.names()
    if NAME in names:
        return
    if any(name.startswith(SLOT_PREFIX) for name in names):
        raise _missing_manifest()
    await ManifestStore(files).commit(lambda: first or Manifest(), HeldLedgers())


def is_first_manifest(data: bytes) -> bool:
    """Return whether `initialize_directory` wrote this MANIFEST. The first start replaces it."""
    try:
        manifest = decode_manifest(data)
    except StartupError:
        return False
    return manifest.generation == FIRST_GENERATION and not manifest.files


async def _go_on() -> None:
    """Do nothing. Other tasks need not run meanwhile, because the bookie has no clients yet."""


class ManifestStore:
    """The durable MANIFEST of one directory, and the ledger-state file that it names.

    A commit appends the changed states to the ledger-state file. If the appended part is already
    larger than both the first part of the file and `deltas_bytes_min`, the commit writes all states
    to a new file instead. The commit writes the states in slices of `UNITS_PER_TURN` states. The
    last block contains the changes that are made during the commit. No other task runs between the
    encoding of this block and the composition of the MANIFEST, so the block and the MANIFEST agree.
    """

    def __init__(
        self,
        files: FileSystem,
        deltas_bytes_min: int = 1,
        give_way: Callable[[], Awaitable[None]] = _go_on,
    ) -> None:
        self._files = files
        self._give_way = give_way
        self._deltas_min = deltas_bytes_min
        # Size of the first part of the state file; None if another process wrote this file.
        self._base_bytes: int | None = None
        self.current = Manifest()  # the MANIFEST on the device

    async def load(self, names: list[str]) -> HeldLedgers:
        """Read the MANIFEST and the ledger states."""
        if NAME not in names:
            raise _missing_manifest()
        self.current = await self.read(names)
        name = self.current.state_file
        if name not in names:
            raise DamagedDirectoryError(
                f"the ledger-state file {name!r} is missing, but the MANIFEST lists it. The file "
                f"has the keys and fences of ledgers: restore it. {REPLACEMENT_ADVICE}",
                path=name,
                reason="missing",
            )
        if self.current.state_bytes == 0:
            return decode_states_of_version_1(await self._read(name), name)
        data = await self._read(name, self.current.state_bytes)
        if len(data) < self.current.state_bytes:
            raise DamagedDirectoryError(
                f"the ledger-state file {name} has {len(data)} of {self.current.state_bytes} "
                f"bytes; it holds keys and fences. {REPLACEMENT_ADVICE}",
                path=name,
                reason="cut off",
            )
        # Only a downgrade writes states without cleared epochs, and only after the doubt is over.
        return decode_states(data, name, self.current.doubt.cleared)

    async def read(self, names: list[str]) -> Manifest:
        """Read only the MANIFEST. After a downgrade, take the identity from a separate file."""
        data = await self.read_manifest()
        manifest = decode_manifest(data)
        if decode_version(data) >= RUN_SINCE or IDENTITY_NAME not in names:
            return manifest
        return decode_identity(await self._read(IDENTITY_NAME), manifest)

    async def keep_identity(self, manifest: Manifest) -> None:
        """Write the identity durably to a file, because a MANIFEST of the old version lacks it."""
        await self._write(IDENTITY_NEW_NAME, encode_identity(manifest))
        await self._files.rename(IDENTITY_NEW_NAME, IDENTITY_NAME)
        await self._files.sync_directory()

    async def read_manifest(self) -> bytes:
        """Return the bytes of the MANIFEST."""
        return await self._read(NAME)

    async def commit(
        self,
        compose: Callable[[], Manifest],
        states: HeldLedgers,
        version: int = FORMAT_VERSION,
    ) -> None:
        """Replace the MANIFEST atomically. The new MANIFEST is durable on return.

        `compose` is called once and returns the MANIFEST, to which the commit adds a generation and
        a state file. State changes after the call of `compose` are not in the commit, and on return
        `states.changed` has only these changes. After a DiskFullError or TooManyFilesError, the old
        MANIFEST is still valid. After a SyncFailedError, either the old or the new MANIFEST is
        valid.
        """
        generation = self.current.generation + 1
        appended = self.current.state_bytes - (self._base_bytes or 0)
        is_base = self._base_bytes is None or appended > max(self._base_bytes, self._deltas_min)
        if is_base:
            name, start = f"{STATE_PREFIX}{generation:010d}", 0
        else:
            name, start = self.current.state_file, self.current.state_bytes
        taken: set[int] = set()
        try:
            file = await self._files.open(name, create=is_base)
            try:
                ids = list(states) if is_base else []
                encode = partial(
                    encode_states,
                    generation,
                    states,
                    version=STATES_BEFORE if version < FORMAT_VERSION else STATES_VERSION,
                )
                end, manifest = await self._write_states(
                    file, start, encode, states, ids, taken, compose
                )
                await file.datasync()
            finally:
                await file.close()
            manifest = replace(manifest, generation=generation, state_file=name, state_bytes=end)
            if is_base:
                # File systems make names durable in any order, but the name of the state file must
                # be durable before a MANIFEST contains this name.
                await self._files.sync_directory()
            encoding = manifest_encoding(manifest, UNITS_PER_TURN, version)
            await self._write(NEW_NAME, await run_in_slices(encoding, self._give_way))
            await self._files.rename(NEW_NAME, NAME)
        except BaseException:
            states.changed |= taken
            raise
        await self._settle(manifest, end if is_base else None)

    async def _settle(self, manifest: Manifest, base_bytes: int | None) -> None:
        """Make the renamed MANIFEST durable, and remove the previous state file."""
        try:
            await self._files.sync_directory()
        except DiskFullError as error:
            # The new MANIFEST may already be valid, but a later commit could overwrite its states.
            # So this error must end the storage.
            raise SyncFailedError(f"{error.message}, after the rename", path=NAME) from error
        old, self.current = self.current.state_file, manifest
        if base_bytes is not None:
            self._base_bytes = base_bytes
            if old:
                with contextlib.suppress(DiskFullError):  # the next start removes the file
                    await self._files.remove(old)

    async def _write_states(
        self,
        file: File,
        offset: int,
        encode: Callable[[Iterable[int]], bytes],
        states: HeldLedgers,
        ids: list[int],
        taken: set[int],
        compose: Callable[[], Manifest],
    ) -> tuple[int, Manifest]:
        """Write the states of `ids` and the changed states, whose ids are added to `taken`.

        Return the end of the written states in the file, and the MANIFEST that `compose` returned.
        """
        if offset == 0:
            await file.truncate(0)
        # Each round of this loop has fewer states than the previous round, unless states change as
        # fast as they are written. In that case, the last block has all remaining states.
        rounds_left = 2 + 2 * ((len(states) + len(states.changed)) // UNITS_PER_TURN)
        while True:
            changed, states.changed = states.changed, set()
            taken |= changed
            ids += changed
            if len(ids) <= UNITS_PER_TURN or rounds_left <= 0:
                break
            while len(ids) > UNITS_PER_TURN:
                part = ids[-UNITS_PER_TURN:]
                del ids[-UNITS_PER_TURN:]
                offset = await self._append(file, offset, encode(part))
                rounds_left -= 1
        block = encode(ids)
        manifest = compose()
        return await self._append(file, offset, block), manifest

    async def _append(self, file: File, offset: int, block: bytes) -> int:
        await file.write(offset, (block,))
        return offset + len(block)

    async def remove_strays(self) -> None:
        """Remove the files that a crash left and the MANIFEST does not name."""
        # After a commit, the MANIFEST has the identity that a downgrade stored in these files.
        kept = () if self._base_bytes is None else (IDENTITY_NAME, IDENTITY_NEW_NAME)
        named = {self.current.state_file, *self.current.free_slots}
        named |= {entry.slot for entry in self.current.files}
        for name in await self._files.names():
            is_ours = is_slot_name(name) or is_state_name(name) or name in (NEW_NAME, *kept)
            if is_ours and name not in named:
                await self._files.remove(name)

    async def remove_slot(self, name: str) -> None:
        """Remove a slot that the durable MANIFEST does not name."""
        assert name not in self.current.free_slots
        assert all(entry.slot != name for entry in self.current.files)
        await self._files.remove(name)

    async def mark_unclean(self) -> None:
        """Create the unclean marker. It is durable on return."""
        await self._write(UNCLEAN_NAME, b"")
        await self._files.sync_directory()

    async def unmark_unclean(self) -> None:
        """Remove the unclean marker, after everything else is durable."""
        await self._files.remove(UNCLEAN_NAME)
        await self._files.sync_directory()

    async def _read(self, name: str, size_max: int | None = None) -> bytes:
        file = await self._files.open(name)
        try:
            size = await file.size()
            return await file.read(0, size if size_max is None else min(size, size_max))
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
        "the MANIFEST, which lists the valid files, does not exist; restore all files of the "
        "directory. "
        f"{REPLACEMENT_ADVICE}",
        path=NAME,
        reason="missing",
    )
