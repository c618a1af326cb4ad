"""Announces a bookie as writable or read-only, and ends the session of its previous process.

The store's own registration repeats the announcement after a lost session. This module announces
changes between the two states, and retries until the store has accepted them.

The metadata store keeps the registration of a killed bookie for a session timeout. Its next start
does not wait for that: the file `SESSION` in its directory has the secret to end the old session,
and the lock on the directory shows that the previous process is dead. That is proof only if the
file was written under the same lock: by the same running kernel, and on the same inode. After a
reboot, or for a copied directory, the old session is left to its timeout.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from bookie_server.service.logging import get_logger
from bookie_server.storage.device.filesystem import LOCK_NAME
from ledgerlog_spark.errors import LedgerLogError
from ledgerlog_spark.metadata.bookies.registration import Registration
from ledgerlog_spark.metadata.tree import ZnodeTree
from ledgerlog_spark.model import BookieInfo

RETRY_DELAY_MS: Final = 1_000
SESSION_FILE: Final = "SESSION"
BOOT_ID: Final = Path("/proc/sys/kernel/random/boot_id")

_FLAGS: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC | os.O_NOFOLLOW

_logger = get_logger("registration")
_session_logger = get_logger("session")


class BookieRegistration:
    """The announcement of one bookie.

    Until the store has accepted a change, clients may still choose a bookie that is read-only;
    storage refuses their adds.
    """

    def __init__(self, registration: Registration, info: BookieInfo) -> None:
        self._registration = registration
        self._info = info
        self._is_read_only = False
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def start(self, *, read_only: bool) -> None:
        """Announce the bookie; it is visible on return. Fails if another session holds its id."""
        self._is_read_only = read_only
        await self._registration.register(self._info, read_only=read_only)
        self._task = asyncio.create_task(self._follow(read_only), name="registration")

    def set_read_only(self, *, read_only: bool) -> None:
        """Announce the other state as soon as the store accepts it."""
        self._is_read_only = read_only
        self._changed.set()

    async def stop(self) -> None:
        """Withdraw the announcement; if the store is unreachable, the end of the session does."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task
        try:
            await self._registration.unregister(self._info.bookie_id)
        except LedgerLogError as error:
            _logger.warning("unregister_failed", reason=str(error))

    async def _follow(self, announced_read_only: bool) -> None:
        while True:
            await self._changed.wait()
            self._changed.clear()
            read_only = self._is_read_only
            if read_only == announced_read_only:
                continue
            try:
                await self._registration.register(self._info, read_only=read_only)
            except LedgerLogError as error:
                _logger.warning("state_not_announced", read_only=read_only, reason=str(error))
                self._changed.set()
                await asyncio.sleep(RETRY_DELAY_MS / 1_000)
            else:
                announced_read_only = read_only
                _logger.info("state_announced", read_only=read_only)


class SessionFile:
    """The file `SESSION` of a directory that the caller has locked."""

    def __init__(self, directory: Path, boot_id: Path = BOOT_ID) -> None:
        """Read and write nothing yet. Without a file `boot_id` no session is ever ended."""
        self._path = directory / SESSION_FILE
        self._lock_path = directory / LOCK_NAME
        self._boot_id = boot_id

    async def take_over(self, tree: ZnodeTree) -> Callable[[], None]:
        """End the session of this bookie's last process, and from now on store that of `tree`.

        Failures cost time only: the old session ends by its timeout. Returns a function that stops
        following `tree` from one session to the next.
        """
        secret = self._recall()
        if secret is not None:
            try:
                await tree.end_session(secret)
            except LedgerLogError as error:
                _session_logger.warning("old_session_not_ended", reason=str(error))
        self._remember(tree)
        return tree.watch_session(lambda: self._remember(tree))

    def _remember(self, tree: ZnodeTree) -> None:
        """Write the file; after an interrupted write it is not JSON and is ignored."""
        record = {**self._holder(), "secret": tree.session_secret.hex()}
        try:
            with os.fdopen(os.open(self._path, _FLAGS, 0o600), "wb") as file:
                file.write(json.dumps(record).encode())
        except OSError as error:
            _session_logger.warning(
                "session_not_remembered", path=str(self._path), reason=str(error)
            )

    def _recall(self) -> bytes | None:
        """Return the secret, or None unless it was written under the caller's lock."""
        try:
            record = json.loads(self._path.read_bytes())
            holder = self._holder()
            if holder["boot_id"] is None or any(record[k] != v for k, v in holder.items()):
                return None
            return bytes.fromhex(record["secret"]) or None
        except (OSError, ValueError, KeyError, TypeError):
            return None

    def _holder(self) -> dict[str, Any]:
        """Return the identity of this lock."""
        lock = self._lock_path.stat()
        try:
            boot_id = self._boot_id.read_text().strip() or None
        except OSError:
            boot_id = None
        return {"boot_id": boot_id, "device": lock.st_dev, "inode": lock.st_ino}
