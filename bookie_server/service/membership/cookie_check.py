"""Verifies that data belongs to this bookie, with the cookies in its directories and the store.

A bookie with the data of another bookie, or without its own data, would answer "no such entry" for
acknowledged entries. So a bookie starts only if all cookies exist and agree with its settings, and
every directory has its MANIFEST. At the first start of a bookie, the cookies and the MANIFEST do
not exist yet.

At its first start, a bookie writes a cookie, the file `VERSION`, into every directory, then the
first MANIFEST, then the cookie in the metadata store. Each write is durable before the next write
begins. If a first start is interrupted, some directories contain a cookie, but no directory
contains entries. The next start then continues the first start. If the cookie is in the metadata
store, a directory without a MANIFEST has lost its files. In this case, the start is refused. If the
setting `allow_lost_directory` is set and the directory is empty, the start continues in doubt: the
first MANIFEST has an epoch of doubt, and is durable before the `VERSION` file. So after a crash, an
empty directory never counts as a directory without losses.

The directories of a bookie change only on request: an empty directory is added, or a lost directory
is removed. While such a change is written, a directory may have the cookie from before the change
or the cookie from after the change.
"""

from __future__ import annotations

import os
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from bookie_server.core.directory_identity import manifest_after_a_loss
from bookie_server.core.manifest_codec import NAME as MANIFEST_FILE
from bookie_server.core.manifest_codec import Manifest, decode_manifest
from bookie_server.errors import (
    REPLACEMENT_ADVICE,
    CookieMismatchError,
    lost_directory_advice,
)
from bookie_server.storage.device.directories import sync_path
from bookie_server.storage.files.manifest import NEW_NAME, STATE_PREFIX, is_first_manifest
from ledgerlog_spark.errors import MetadataVersionError, WireFormatError
from ledgerlog_spark.metadata.known_bookies import KnownBookies
from ledgerlog_spark.metadata.registration import Registration
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.wire.cookie import Cookie

COOKIE_FILE: Final = "VERSION"
_TEMPORARY_FILE: Final = "VERSION.new"
_NO_DATA: Final = frozenset({COOKIE_FILE, _TEMPORARY_FILE, NEW_NAME, "LOCK", "lost+found"})
_FILE_MODE: Final = 0o600


@dataclass(frozen=True, slots=True)
class CheckedCookie:
    """The cookie with which a bookie starts.

    Attributes:
        cookie: The cookie that all directories and the metadata store have after the change.
        version: The version of the cookie in the store.
        added: Empty directories that the change adds.
        removed: Directories of the cookie in the store that the change removes.
    """

    cookie: Cookie
    version: Version | None = None
    added: tuple[Path, ...] = ()
    removed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class WantedChange:
    """The changes of the bookie's directories that its settings permit.

    Attributes:
        without: Directories that may be removed.
        may_add: Whether empty directories may be added.
        may_be_lost: Whether the only directory may have lost its data.
    """

    without: Collection[Path] = ()
    may_add: bool = False
    may_be_lost: bool = False


async def check_cookies(
    registration: Registration,
    bookie_id: str,
    directories: Sequence[Path],
    initialize: Callable[[Manifest | None], Awaitable[None]],
    known: KnownBookies,
    change: WantedChange = WantedChange(),
) -> CheckedCookie:
    """Return the bookie's cookie, and the change of its directories that the caller must make.

    Without a change, all directories and the metadata store have the cookie on return. The caller
    has locked the directories. A first start writes the cookies of the directories, calls
    `initialize` to write the first MANIFESTs, and writes the cookie of the store. After an
    interruption, the next start calls `initialize` again. `known` is the store of the bookies'
    records. If it has a record of this bookie, this is not the first start. If `change.may_be_lost`
    is set, the only directory gets a first MANIFEST in doubt.

    If this function raises CookieMismatchError, it has changed nothing, unless another process
    created the cookie in the store at the same time.
    """
    await registration.sync()
    wanted = Cookie(
        bookie_id=bookie_id,
        journal_directory=str(directories[0]),
        ledger_directories=tuple(str(directory) for directory in directories),
        instance_id=await registration.instance_id(),
    )
    stored = await registration.read_cookie(bookie_id)
    if stored is not None:
        cookie = _cookie_of_store(stored, wanted)
        is_same = cookie.ledger_directories == wanted.ledger_directories
        if change.may_be_lost and is_same and all(map(_is_lost, directories)):
            await _begin_in_doubt(bookie_id, directories, initialize, known, wanted)
            return CheckedCookie(wanted)
        return _checked(cookie, stored.version, wanted, directories, change)
    allowed = {frozenset(wanted.ledger_directories)}
    without_cookie = [path for path in directories if not _has_cookie(path, wanted, allowed)]
    _refuse_data_nobody_knows(directories, without_cookie, bookie_id)
    if await known.read(bookie_id) is not None:
        raise _wiped(directories[0], bookie_id)
    for directory in without_cookie:
        write_atomically(directory / COOKIE_FILE, wanted.encode())
    await initialize(None)
    try:
        await registration.write_cookie(bookie_id, wanted.encode(), None)
    except MetadataVersionError:
        raise CookieMismatchError(
            f"another process has just created a cookie for bookie {bookie_id}; give one of the "
            "two bookies another bookie_id",
            bookie_id=bookie_id,
        ) from None
    return CheckedCookie(wanted)


def _cookie_of_store(stored: Versioned[bytes], wanted: Cookie) -> Cookie:
    place = _place_in_store(wanted)
    cookie = _decoded(stored.value, place)
    if cookie.instance_id != wanted.instance_id or cookie.bookie_id != wanted.bookie_id:
        raise CookieMismatchError(
            f"{place} belongs to bookie {cookie.bookie_id} in instance {cookie.instance_id}, not "
            f"to bookie {wanted.bookie_id} in instance {wanted.instance_id}; this cookie was "
            "edited or copied, so inspect it",
            bookie_id=wanted.bookie_id,
            path=place,
        )
    return cookie


def _place_in_store(cookie: Cookie) -> str:
    return f"cookies/{cookie.bookie_id} in the metadata store"


def _checked(
    cookie: Cookie,
    version: Version,
    wanted: Cookie,
    directories: Sequence[Path],
    change: WantedChange,
) -> CheckedCookie:
    """Compare the directories with the cookie in the store, and return the requested change."""
    place = _place_in_store(wanted)
    added = tuple(path for path in directories if str(path) not in cookie.ledger_directories)
    here = frozenset(wanted.ledger_directories)
    removed = tuple(path for path in cookie.ledger_directories if path not in here)
    if set(map(Path, removed)) - set(change.without) or (added and removed):
        raise _other_directories(place, cookie, wanted)
    if added and not change.may_add:
        raise _other_directories(place, cookie, wanted, added)
    allowed = {frozenset(cookie.ledger_directories), here}
    for directory in directories:
        has_cookie = _has_cookie(directory, wanted, allowed)
        if directory in added:
            if not _holds_no_entries(directory):
                raise _not_empty(directory, wanted.bookie_id)
        elif not has_cookie:
            raise _missing_file(directory / COOKIE_FILE, wanted, directories)
        elif not (directory / MANIFEST_FILE).exists():
            raise _missing_file(directory / MANIFEST_FILE, wanted, directories)
    return CheckedCookie(wanted, version, added, removed)


def _is_lost(directory: Path) -> bool:
    """Return whether a directory has no data, or only the first MANIFEST after a loss."""
    path = directory / MANIFEST_FILE
    if not _holds_no_entries(directory):
        return False
    return not path.exists() or decode_manifest(path.read_bytes()).doubt.epoch > 0


async def _begin_in_doubt(
    bookie_id: str,
    directories: Sequence[Path],
    initialize: Callable[[Manifest | None], Awaitable[None]],
    known: KnownBookies,
    cookie: Cookie,
) -> None:
    """Write the first MANIFEST of an empty directory, in doubt, and then its cookie."""
    found = await known.read(bookie_id)
    if found is not None and found.value.is_retired:
        raise _wiped(directories[0], bookie_id)
    await initialize(
        manifest_after_a_loss(None if found is None else found.value, os.urandom(8).hex())
    )
    for directory in directories:
        write_atomically(directory / COOKIE_FILE, cookie.encode())


def write_atomically(path: Path, data: bytes) -> None:
    """Replace a file atomically. Its new data and its name are durable on return."""
    temporary = path.with_name(_TEMPORARY_FILE)
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW
    with os.fdopen(os.open(temporary, flags, _FILE_MODE), "wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(path)
    sync_path(path.parent)


def _has_cookie(directory: Path, wanted: Cookie, allowed: Collection[frozenset[str]]) -> bool:
    """Return whether the directory contains a cookie. If the cookie is wrong, raise an error.

    The directories of the cookie must be one of the sets in `allowed`.
    """
    path = directory / COOKIE_FILE
    try:
        found = _decoded(path.read_bytes(), str(path))
    except FileNotFoundError:
        return False
    if found.bookie_id != wanted.bookie_id:
        raise CookieMismatchError(
            f"{directory} belongs to another bookie: {path} names bookie {found.bookie_id}, but "
            f"this bookie is {wanted.bookie_id}. Give bookie {wanted.bookie_id} a directory of its "
            f"own. If only its address or port has changed, set bookie_id to {found.bookie_id}",
            bookie_id=wanted.bookie_id,
            path=str(path),
            found=found.bookie_id,
        )
    if found.instance_id != wanted.instance_id:
        raise CookieMismatchError(
            f"the data in {directory} belongs to another cluster: {path} names instance "
            f"{found.instance_id}, but the metadata store has instance {wanted.instance_id}; check "
            "the metadata service URI",
            bookie_id=wanted.bookie_id,
            path=str(path),
            found=found.instance_id,
        )
    if frozenset(found.ledger_directories) not in allowed:
        raise _other_directories(str(path), found, wanted)
    return True


def _other_directories(
    place: str, found: Cookie, wanted: Cookie, added: Sequence[Path] = ()
) -> CookieMismatchError:
    advice = (
        f"To add {', '.join(map(str, added))}, start it once with --allow-storage-expansion. "
        if added and len(wanted.ledger_directories) > len(added)
        else ""
    )
    return CookieMismatchError(
        f"bookie {wanted.bookie_id} keeps its data in {', '.join(found.ledger_directories)} "
        f"(according to {place}), but was started with {', '.join(wanted.ledger_directories)}; "
        "start it with its own directories, or use the new directories for a bookie with another "
        f"id. {advice}If the directory was moved, run ledgerlog bookie cookie fix with its new "
        "path",
        bookie_id=wanted.bookie_id,
        path=place,
        found=found.ledger_directories,
    )


def _not_empty(directory: Path, bookie_id: str) -> CookieMismatchError:
    return CookieMismatchError(
        f"{directory} is new for bookie {bookie_id}, but it is not empty. If it was a directory of "
        "this bookie before, it is an older copy. Start the bookie with an empty directory instead",
        bookie_id=bookie_id,
        path=str(directory),
    )


def _missing_file(path: Path, wanted: Cookie, directories: Sequence[Path]) -> CookieMismatchError:
    bookie_id = wanted.bookie_id
    advice = (
        "If they are lost, empty the directory and start the bookie once with "
        "allow_lost_directory=true: it then starts in doubt, and denies no entry that it may have "
        "lost"
        if len(directories) == 1
        else lost_directory_advice(path.parent, len(directories))
    )
    return CookieMismatchError(
        f"bookie {bookie_id} is registered in the cluster, but {path} does not exist: its data is "
        f"missing (is the disk mounted?). Restore all files of the directory. {advice}",
        bookie_id=bookie_id,
        path=str(path),
    )


def _wiped(directory: Path, bookie_id: str) -> CookieMismatchError:
    return CookieMismatchError(
        f"bookie {bookie_id} was in the cluster before, but {directory} has no data, and the "
        "metadata store has no cookie of this bookie: it was taken out of service, or its cookie "
        f"was deleted. If another directory has its data: ledgerlog bookie cookie create "
        f"DIRECTORY. {REPLACEMENT_ADVICE}",
        bookie_id=bookie_id,
        path=str(directory),
    )


def _holds_no_entries(directory: Path) -> bool:
    """Return whether a directory contains only files of a first start, and no entries."""
    for entry in directory.iterdir():
        if entry.name == MANIFEST_FILE:
            if not is_first_manifest(entry.read_bytes()):
                return False
        elif entry.name not in _NO_DATA and not entry.name.startswith(STATE_PREFIX):
            return False
    return True


def _refuse_data_nobody_knows(
    directories: Sequence[Path], without_cookie: Sequence[Path], bookie_id: str
) -> None:
    for directory in directories:
        if _holds_no_entries(directory):
            continue
        if directory in without_cookie:
            message = (
                f"{directory} contains files, but no {COOKIE_FILE} file, which would name the "
                f"bookie that owns the files. The metadata store has no cookie of bookie "
                f"{bookie_id}, so this is its first start: start it with a new directory"
            )
        else:
            message = (
                f"{directory} holds data of bookie {bookie_id}, but the metadata store has no "
                "cookie of this bookie: either the bookie was taken out of service, or the "
                "metadata store lost its data. Keep the files. If they are the newest state of the "
                f"bookie, write its cookie again: ledgerlog bookie cookie create {directory}. "
                "Otherwise start a bookie with another bookie_id and a new directory"
            )
        raise CookieMismatchError(message, bookie_id=bookie_id, path=str(directory))


def _decoded(data: bytes, place: str) -> Cookie:
    try:
        return Cookie.decode(data)
    except WireFormatError as error:
        raise CookieMismatchError(
            f"{place} is not a readable cookie ({error.message}); restore it from the other "
            f"copy: the {COOKIE_FILE} file and the node in the metadata store hold the same text",
            path=place,
        ) from error
