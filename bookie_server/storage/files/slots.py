"""Creates slots before they are used, and reuses slots that the durable MANIFEST lists as free."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from bookie_server.core.manifest_codec import FileEntry, FileState
from bookie_server.core.settings import FILE_SIZE_BYTES_MIN, StorageSettings
from bookie_server.core.slot_header import (
    HEADER_AREA_SIZE,
    SlotHeader,
    SlotState,
    decode_slot_header,
    encode_slot_header,
)
from bookie_server.errors import DiskFullError, MissingFileError, TooManyFilesError
from bookie_server.ports import File
from bookie_server.storage.files.entry_log_file import OpenFile
from bookie_server.storage.files.pool import FilePool

LAST_RESORT_FRACTION = 16


class Slots:
    """Prepares slots for new files, and gives each slot a new identity."""

    def __init__(self, files: FilePool, settings: StorageSettings) -> None:
        self._files = files
        self._settings = settings

    async def prepare(
        self,
        file_id: int,
        free_slot: str | None,
        *,
        others: Sequence[str] = (),
        borrowed_bytes: int = 0,
        is_last_resort: bool = False,
        needed_bytes: int = 0,
        may_take_all: bool = False,
    ) -> OpenFile:
        """Return an empty file with a new identity. Its blocks, header and name are durable.

        The file uses `free_slot`, which the durable MANIFEST must list as free. If `free_slot` is
        None, the file uses a new slot, which is removed after a DiskFullError or TooManyFilesError.
        Unless `may_take_all` is true, enough room for the file of compaction must remain, on the
        device or in one of the free slots `others`. Compaction already uses `borrowed_bytes` of
        this room.
        If `is_last_resort` is true, the file has a small part of the usual size in addition to
        `needed_bytes`. It may then use the space that is otherwise kept free, so that a bookie with
        a full disk still starts.
        """
        size, kept_free = self._settings.file_size_bytes, self._settings.free_bytes_min
        if is_last_resort:
            size = max(FILE_SIZE_BYTES_MIN, size // LAST_RESORT_FRACTION // 4096 * 4096)
            size += -(-needed_bytes // 4096) * 4096
            # Some room stays free, because the start also writes the ledger states and a MANIFEST.
            kept_free = min(needed_bytes, FILE_SIZE_BYTES_MIN)
        elif not may_take_all:
            room = self._settings.compaction_slot_bytes
            kept_free += room - min(room, max(borrowed_bytes, await self._largest(others)))
        return await self._prepare(file_id, free_slot, size, kept_free)

    async def prepare_draft(
        self, file_id: int, free_slots: Sequence[str], needed_bytes: int
    ) -> OpenFile:
        """Return an empty file for the copies of compaction. No MANIFEST may list it yet.

        If the disk is too full for a whole file, the file has at least `needed_bytes`. It may use
        half of the space that is otherwise kept free, because a start on a full disk may have taken
        a part of the room for this file.
        """
        sizes = {slot: await self._size_of(slot) for slot in free_slots}
        free_slot = max(free_slots, key=lambda slot: sizes[slot], default=None)
        kept_free = self._settings.free_bytes_min // 2
        room = await self._files.free_space() - kept_free
        room += 0 if free_slot is None else sizes[free_slot]
        size = min(self._settings.file_size_bytes, room // 4096 * 4096)
        needed_bytes = min(needed_bytes, self._settings.file_size_bytes)
        size = max(size, FILE_SIZE_BYTES_MIN, -(-needed_bytes // 4096) * 4096)
        return await self._prepare(file_id, free_slot, size, kept_free)

    async def _prepare(
        self, file_id: int, free_slot: str | None, size: int, kept_free: int
    ) -> OpenFile:
        name = free_slot or f"slot-{file_id:08d}"
        handle = await self._files.open(name, create=True)
        try:
            # A freed slot may be shorter, because it was cut after the index of its former file.
            growth = max(0, size - await handle.size())
            await self._require_room(growth, kept_free, name)
            await handle.allocate(size)
            salt = self._files.random_bytes(16).hex()
            entry = FileEntry(file_id, name, salt, FileState.OPEN, size)
            await write_header(handle, entry)
            await self._files.sync_directory()
        except BaseException as error:
            await handle.close()
            if free_slot is None and isinstance(error, (DiskFullError, TooManyFilesError)):
                await self._files.remove(name)
            raise
        return OpenFile(entry, handle, entry.identity, is_recycled=free_slot is not None)

    async def discard(self, file: OpenFile) -> None:
        """Close a prepared file that no MANIFEST lists as in use. Remove its slot if it is new."""
        await file.handle.close()
        if not file.is_recycled:
            with contextlib.suppress(DiskFullError):  # the next start removes the file
                await self._files.remove(file.entry.slot)

    async def _largest(self, slots: Sequence[str]) -> int:
        """Return the size of the largest slot, or 0 if there is no slot."""
        return max([await self._size_of(slot) for slot in slots], default=0)

    async def _size_of(self, slot: str) -> int:
        try:
            handle = await self._files.open(slot)
        except MissingFileError:
            return 0  # the file was removed; `_prepare` creates it again
        try:
            return await handle.size()
        finally:
            await handle.close()

    async def _require_room(self, growth: int, kept_free: int, name: str) -> None:
        needs_room = growth > 0 or kept_free > self._settings.free_bytes_min
        if needs_room and await self._files.free_space() < growth + kept_free:
            raise DiskFullError(
                f"{growth} more bytes for a file would leave less than {kept_free} bytes free; "
                "make room or add bookies",
                path=name,
            )


async def write_header(handle: File, entry: FileEntry) -> None:
    """Write and sync the header of a file. If the file is finished, its index must be durable."""
    before = decode_slot_header(await handle.read(0, HEADER_AREA_SIZE))
    header = SlotHeader(
        state=SlotState[entry.state.name],
        generation=1 if before is None else before.generation + 1,
        file_id=entry.file_id,
        salt=bytes.fromhex(entry.salt),
        file_size=entry.size_bytes,
        finish_offset=entry.finish_offset,
        last_sequence=entry.last_sequence,
    )
    await handle.write(header.sector_offset, (encode_slot_header(header),))
    await handle.datasync()


async def is_intact(handle: File, entry: FileEntry) -> bool:
    """Return whether the header of the slot contains the identity that the MANIFEST lists."""
    header = decode_slot_header(await handle.read(0, HEADER_AREA_SIZE))
    return header is not None and header.identity(entry.slot) == entry.identity
