"""Registers a bookie as writable or read-only, and ends the session of its previous process.

After a lost session, the class `Registration` of the metadata store repeats the registration (the
announcement) of the bookie. This module announces each change between writable and read-only, and
retries until the store accepts the change. If the number of free bytes changes by a large part, it
announces this number again (AUTORECOVERY.md#Z5).

The metadata store keeps the registration of a killed bookie for a session timeout. The next start
of the bookie does not wait for this timeout. The file `SESSION` of the directory contains the
secret that ends the old session, and the lock of the directory proves that the previous process has
ended. The lock is a proof only if the previous process held the same lock: the same inode under the
same running kernel. After a reboot, or in a copied directory, the start does not use the secret,
and the old session ends after its timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from bookie_server.service.logging import fields_of, get_logger
from bookie_server.storage.device.filesystem import LOCK_NAME
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.metadata.tree import ZnodeTree
from ledgerlog_spark.model import BookieInfo
from ledgerlog_spark.wire.registration import FREE_BYTES_PROPERTY

RETRY_DELAY_MS: Final = 1_000
FREE_BYTES_INTERVAL_MS: Final = 60_000
"""Minimum time between two announcements of the free bytes, in milliseconds."""
FREE_BYTES_PARTS: Final = 8
"""Divisor: the free bytes are announced again if they have changed by more than 1/8."""
SESSION_FILE: Final = "SESSION"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW

_logger = get_logger("registration")
_session_logger = get_logger("session")


class BookieRegistration:
    """Announces one bookie in the metadata store.

    Until the store accepts a change, clients may still choose a bookie that is read-only. The
    storage of that bookie refuses the adds.
    """

    def __init__(
        self, registration: Registration, info: BookieInfo, free_bytes: Callable[[], int]
    ) -> None:
        """Announce nothing before `start`. `free_bytes` returns the number of usable bytes."""
        self._registration = registration
        self._info = info
        self._free_bytes = free_bytes
        self._is_read_only = False
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, *, read_only: bool) -> None:
        """Announce the bookie to all clients, or fail if another session holds the bookie id."""
        self._is_read_only = read_only
        self._note_free_bytes()
        await self._registration.register(self._info, read_only=read_only)
        self._tasks = [
            asyncio.create_task(self._follow(read_only), name="registration"),
            asyncio.create_task(self._measure(), name="registered free bytes"),
        ]

    def set_read_only(self, *, read_only: bool) -> None:
        """Announce whether the bookie is read-only. Retry until the store accepts the change."""
        self._is_read_only = read_only
        self._changed.set()

    async def stop(self) -> None:
        """Withdraw the announcement.

        If this fails, the end of the session deletes the announcement.
        """
        for task in self._tasks:
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await task
        try:
            await self._registration.unregister(self._info.bookie_id)
        except LedgerLogError as error:
            _logger.warning("unregister_failed", **fields_of(error))

    async def _measure(self) -> None:
        while True:
            await asyncio.sleep(FREE_BYTES_INTERVAL_MS / 1_000)
            before = self._info.free_bytes or 0
            if abs(self._free_bytes() - before) * FREE_BYTES_PARTS > before:
                self._note_free_bytes()
                self._changed.set()

    def _note_free_bytes(self) -> None:
        free = {FREE_BYTES_PROPERTY: str(self._free_bytes())}
        self._info = replace(self._info, properties={**self._info.properties, **free})

    async def _follow(self, announced_read_only: bool) -> None:
        announced = self._info
        while True:
            await self._changed.wait()
            self._changed.clear()
            read_only, info = self._is_read_only, self._info
            if read_only == announced_read_only and info == announced:
                continue
            try:
                await self._registration.register(info, read_only=read_only)
            except LedgerLogError as error:
                _logger.warning("state_not_announced", read_only=read_only, **fields_of(error))
                self._changed.set()
                await asyncio.sleep(RETRY_DELAY_MS / 1_000)
            else:
                if read_only != announced_read_only:
                    _logger.info("state_announced", read_only=read_only)
                announced_read_only, announced = read_only, info


class SessionFile:
    """The file `SESSION` of a directory that the caller has locked."""

    def __init__(self, directory: Path, boot_id: Path = BOOT_ID) -> None:
        self._path = directory / SESSION_FILE
        self._lock_path = directory / LOCK_NAME
        self._boot_id = boot_id

    async def end_last(self, tree: ZnodeTree) -> None:
        """End the session of the bookie's previous process. The file does not change.

        A failure only causes a delay, because the old session ends after its timeout.
        """
        secret = self._recall()
        if secret is not None:
            try:
                await tree.end_session(secret)
            except LedgerLogError as error:
                _session_logger.warning("old_session_not_ended", **fields_of(error))

    def follow(self, tree: ZnodeTree) -> Callable[[], None]:
        """Store each session of `tree` in the file, until the returned function is called."""
        self._remember(tree)
        return tree.watch_session(lambda: self._remember(tree))

    def _remember(self, tree: ZnodeTree) -> None:
        """Write the file.

        If a write is interrupted, the file is not valid JSON, and starts ignore it.
        """
        record = {**self._holder(), "secret": tree.session_secret.hex()}
        try:
            with os.fdopen(os.open(self._path, _FLAGS, 0o600), "wb") as file:
                file.write(json.dumps(record).encode())
        except OSError as error:
            _session_logger.warning(
                "session_not_remembered", path=str(self._path), **fields_of(error)
            )

    def _recall(self) -> bytes | None:
        """Return the secret, or None if the writer of the file did not hold the caller's lock."""
        try:
            record = json.loads(self._path.read_bytes())
            holder = self._holder()
            if holder["boot_id"] is None or any(record[k] != v for k, v in holder.items()):
                return None
            return bytes.fromhex(record["secret"]) or None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _holder(self) -> dict[str, Any]:
        lock = self._lock_path.stat()
        try:
            boot_id = self._boot_id.read_text().strip() or None
        except OSError:
            boot_id = None
        return {"boot_id": boot_id, "device": lock.st_dev, "inode": lock.st_ino}
