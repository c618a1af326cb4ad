"""Shows and corrects the cookies of a bookie, and its record in the metadata store.

A directory and the store each have a cookie, which names the bookie and its directories. The
MANIFEST and the bookie's record each have the id and the counters of the directory.
"""

from __future__ import annotations

import contextlib
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from bookie_server.core.directory_identity import (
    ACCEPTED,
    DirectoryFinding,
    DirectoryIdentity,
    compare,
    compare_directory,
    identity_of,
    known_bookie,
    refusal,
)
from bookie_server.core.kept_identity import NAME as IDENTITY_NAME
from bookie_server.core.kept_identity import decode_identity
from bookie_server.core.manifest_codec import NAME as MANIFEST_NAME
from bookie_server.core.manifest_codec import RUN_SINCE, decode_manifest, decode_version
from bookie_server.errors import CookieMismatchError
from bookie_server.ports import FileSystem
from bookie_server.storage.modes.setup import require_own_directory
from bookie_server.tools.directory import COOKIE_NAME, RestingDirectory, opened
from ledgerlog_spark.errors import (
    BookieUnavailableError,
    ConfigurationError,
    LedgerLogError,
    WireFormatError,
)
from ledgerlog_spark.metadata.stores import MetadataStores
from ledgerlog_spark.model import Version, Versioned
from ledgerlog_spark.wire.cookie import Cookie
from ledgerlog_spark.wire.known_bookie import KnownBookie

NEW_COOKIE_NAME = "VERSION.new"


@dataclass(frozen=True, slots=True)
class Stored:
    """The nodes of a bookie in the metadata store.

    If the cookie is damaged, only its version is set.
    """

    bookie_id: str
    cookie: Cookie | None
    cookie_version: Version | None
    record: Versioned[KnownBookie] | None
    instance_id: str
    state: str  # "writable", "read-only" or "down"

    @property
    def known(self) -> KnownBookie | None:
        """The record of the bookie."""
        return None if self.record is None else self.record.value

    @property
    def record_version(self) -> Version | None:
        """The version of the record."""
        return None if self.record is None else self.record.version


async def stored_about(stores: MetadataStores, bookie_id: str) -> Stored:
    """Read the nodes of a bookie in the metadata store."""
    registration = stores.registration
    await registration.sync()
    writable, read_only = await registration.writable(), await registration.read_only()
    is_down = "read-only" if bookie_id in read_only else "down"
    found = await registration.read_cookie(bookie_id)
    cookie = None
    with contextlib.suppress(WireFormatError):
        cookie = None if found is None else Cookie.decode(found.value)
    return Stored(
        bookie_id,
        cookie,
        None if found is None else found.version,
        await stores.known_bookies.read(bookie_id),
        await registration.instance_id(),
        "writable" if bookie_id in writable else is_down,
    )


@dataclass(frozen=True, slots=True)
class Held:
    """The cookie and the identity in a directory's files.

    `problem` is the reason why a file cannot be read, or empty if all files were read.
    """

    path: str
    cookie: Cookie | None
    identity: DirectoryIdentity | None
    problem: str = ""


def held_in(path: Path) -> Held:
    """Read the cookie and the MANIFEST of a directory. Its bookie may be running."""
    cookie, identity, problem = None, None, ""
    try:
        cookie = cookie_of(path)
        identity = _identity_in(path)
    except LedgerLogError as error:
        problem = error.message
    except OSError as error:
        problem = f"cannot read {error.filename or path}: {error.strerror}"
    return Held(str(path), cookie, identity, problem)


def _identity_in(path: Path) -> DirectoryIdentity | None:
    try:
        data = (path / MANIFEST_NAME).read_bytes()
    except FileNotFoundError:
        return None
    manifest = decode_manifest(data)
    kept = path / IDENTITY_NAME
    if decode_version(data) < RUN_SINCE and kept.exists():
        manifest = decode_identity(kept.read_bytes(), manifest)
    return identity_of(manifest)


def differences(stored: Stored, held: Held | None) -> list[str]:
    """Return one sentence for each reason why a bookie would not start with a directory."""
    found = []
    if stored.cookie is None:
        kind = "no cookie" if stored.cookie_version is None else "only a damaged cookie"
        found.append(f"the metadata store has {kind} of bookie {stored.bookie_id}")
    if stored.known is not None and stored.known.is_retired:
        found.append(f"bookie {stored.bookie_id} was taken out of service")
    if held is None:
        return found
    return [*found, *(_missing(held) or _differing(stored, held))]


def _missing(held: Held) -> list[str]:
    if held.problem:
        return [held.problem]
    if held.cookie is None:
        return [f"{held.path} has no file {COOKIE_NAME}"]
    if held.identity is None:
        return [f"{held.path} has no MANIFEST, so its data is missing"]
    return []


def _differing(stored: Stored, held: Held) -> Iterator[str]:
    cookie, known = held.cookie, stored.known
    assert cookie is not None, "a missing cookie was reported earlier"
    assert held.identity is not None, "a missing MANIFEST was reported earlier"
    if cookie.instance_id != stored.instance_id:
        yield f"{held.path} belongs to another cluster, {cookie.instance_id}"
    if cookie.bookie_id != stored.bookie_id:
        yield f"{held.path} belongs to bookie {cookie.bookie_id}"
    for each, place in ((cookie, held.path), (stored.cookie, "the metadata store")):
        if each is not None and held.path not in each.ledger_directories:
            names = ", ".join(each.ledger_directories)
            yield f"the cookie in {place} names another path, {names}"
    if stored.cookie is not None and _paths(cookie) != _paths(stored.cookie):
        yield f"the cookie in {held.path} lists other directories than the metadata store"
    if known is not None and not known.is_retired:
        finding = compare(held.identity, known)
        if finding not in ACCEPTED:
            yield f"{held.path} is {finding.value}"


def _paths(cookie: Cookie) -> frozenset[str]:
    return frozenset(cookie.ledger_directories)


def cookie_of(path: Path) -> Cookie | None:
    """Return the cookie of a directory, or None if it has no cookie.

    Raises:
        CookieMismatchError: The cookie is damaged.
    """
    try:
        return decoded((path / COOKIE_NAME).read_bytes(), str(path / COOKIE_NAME))
    except FileNotFoundError:
        return None


def decoded(data: bytes, place: str) -> Cookie:
    """Decode the cookie of a file or a node.

    Raises:
        CookieMismatchError: The cookie is damaged.
    """
    try:
        return Cookie.decode(data)
    except WireFormatError as error:
        raise CookieMismatchError(
            f"{place} is not a readable cookie ({error.message})", path=place
        ) from error


async def create(stores: MetadataStores, path: Path) -> Stored:
    """Write the cookie of a directory into the store, if it is missing or damaged there.

    If the cookie lists several directories, all these directories are read. Return the new content
    of the store.

    Raises:
        ConfigurationError: The store already has a readable cookie of the bookie, or the bookie
            runs.
        CookieMismatchError: A directory has no cookie, or belongs to another cluster or bookie.
        DirectoryIdentityError: A directory is not in the newest state that the store has recorded.
    """
    async with _own_directory(stores, path) as (directory, cookie, stored):
        if stored.cookie is not None:
            raise ConfigurationError(
                f"the metadata store has a cookie of bookie {cookie.bookie_id}; "
                f"`ledgerlog bookie cookie show {path}` shows the differences",
                bookie_id=cookie.bookie_id,
            )
        identities = []
        for each in map(Path, cookie.ledger_directories):
            if each == path or len(cookie.ledger_directories) == 1:
                identities.append(identity_of(directory.manifest))
            else:
                identities.append(await _identity_of_other(each, cookie))
            _require_newest(str(each), identities[-1], stored)
        await _write_store(stores, stored, identities, cookie)
        return await stored_about(stores, cookie.bookie_id)


async def _identity_of_other(path: Path, cookie: Cookie) -> DirectoryIdentity:
    """Return the identity of another directory with the same cookie."""
    async with opened(path) as directory:
        if cookie_of(path) != cookie:
            raise CookieMismatchError(
                f"{path} has another cookie than the directory that names it; "
                f"`ledgerlog bookie cookie show {path}` shows this cookie",
                path=str(path),
            )
        return identity_of(directory.manifest)


async def fix(stores: MetadataStores, path: Path, bookie_id: str | None) -> list[str]:
    """Write the path of a moved directory into its files and into the store.

    Return the names of the changed parts. The MANIFEST is written first, then the cookie of the
    directory, then the store. After an interruption, a second call completes the change.

    Raises:
        ConfigurationError: The bookie runs, or the store has no cookie of the bookie.
        CookieMismatchError: The directory has no cookie, or belongs to another bookie or cluster.
        DirectoryIdentityError: The directory is not in the newest state that the store has
            recorded.
        MovedDirectoryError: The last run did not stop cleanly, and left data outside of the
            directory.
    """
    async with _own_directory(stores, path) as (directory, cookie, stored):
        if bookie_id not in (None, cookie.bookie_id):
            raise CookieMismatchError(
                f"{path} belongs to bookie {cookie.bookie_id}, not to {bookie_id}. A bookie keeps "
                "its id: the metadata of its ledgers has this id. If only its address or port has "
                f"changed, start it with --bookie-id {cookie.bookie_id}",
                bookie_id=bookie_id,
                path=str(path),
                found=cookie.bookie_id,
            )
        if len(cookie.ledger_directories) > 1:
            raise ConfigurationError(
                f"bookie {cookie.bookie_id} has several directories "
                f"({', '.join(cookie.ledger_directories)}), and this command moves only the "
                f"directory of a bookie with one directory. Mount {path} at its path before the "
                "move",
                bookie_id=cookie.bookie_id,
                path=str(path),
            )
        if stored.cookie is None:
            raise ConfigurationError(
                f"the metadata store has no cookie of bookie {cookie.bookie_id}: first run "
                f"`ledgerlog bookie cookie create {path}`",
                bookie_id=cookie.bookie_id,
            )
        known = stored.known
        finding = compare(identity_of(directory.manifest), known)
        if known is not None and finding not in ACCEPTED:
            local = identity_of(directory.manifest)
            raise refusal(finding, str(path), cookie.bookie_id, local, known)
        wanted = replace(cookie, journal_directory=str(path), ledger_directories=(str(path),))
        changed = []
        if directory.shared.is_moved:
            await _move(directory, known)
            changed.append("MANIFEST")
        if cookie != wanted:
            await _write_cookie(directory.shared.files, wanted.encode())
            changed.append(COOKIE_NAME)
        identity = identity_of(directory.manifest)
        if stored.cookie != wanted or (known is not None and known_bookie([identity]) != known):
            await _write_store(stores, stored, [identity], wanted)
            changed.append("metadata store")
        return changed


async def delete(stores: MetadataStores, stored: Stored) -> None:
    """Delete the cookie of a bookie that does not run, and mark its record as retired.

    Raises:
        ConfigurationError: The bookie runs.
        BookieUnavailableError: The store has neither a cookie nor a record of the bookie.
    """
    require_down(stored)
    if stored.cookie_version is None and (stored.known is None or stored.known.is_retired):
        raise BookieUnavailableError(
            f"the metadata store has no cookie of bookie {stored.bookie_id}; `ledgerlog bookies "
            "list` shows all bookies",
            bookie_id=stored.bookie_id,
            definite=True,
            retriable=False,
        )
    # The record stays, so that an empty directory never starts with the id of this bookie.
    known = replace(stored.known or KnownBookie(()), is_retired=True)
    await stores.known_bookies.write_with_cookie(
        stored.bookie_id, known, stored.record_version, None, stored.cookie_version
    )


def require_down(stored: Stored) -> None:
    """Raise ConfigurationError if the bookie is registered."""
    if stored.state != "down":
        raise ConfigurationError(
            f"bookie {stored.bookie_id} is registered ({stored.state}), so it runs, or it ended "
            "less than its session timeout ago. Nothing was changed: stop it, then run this "
            "command again",
            bookie_id=stored.bookie_id,
            state=stored.state,
        )


@asynccontextmanager
async def _own_directory(
    stores: MetadataStores, path: Path
) -> AsyncIterator[tuple[RestingDirectory, Cookie, Stored]]:
    """Open the directory of a stopped bookie, and read the bookie's nodes in the metadata store."""
    async with opened(path) as directory:
        cookie = cookie_of(path)
        if cookie is None:
            raise CookieMismatchError(
                f"{path} has no file {COOKIE_NAME}, which names the bookie that owns the "
                "directory: restore this file, or all files of the directory",
                path=str(path),
            )
        stored = await stored_about(stores, cookie.bookie_id)
        require_down(stored)
        if cookie.instance_id != stored.instance_id:
            raise CookieMismatchError(
                f"{path} belongs to another cluster: its cookie names instance "
                f"{cookie.instance_id}, but the metadata store has instance {stored.instance_id}. "
                "If the metadata store lost all its data, restore it from a backup",
                bookie_id=cookie.bookie_id,
                path=str(path),
                found=cookie.instance_id,
            )
        yield directory, cookie, stored


def _require_newest(path: str, identity: DirectoryIdentity, stored: Stored) -> None:
    """Refuse a directory that is older than the bookie's record, even if the bookie is retired."""
    known = stored.known
    if known is None or not known.directories:
        return
    finding = compare_directory(identity, known)
    if finding is not DirectoryFinding.OWN:
        raise refusal(finding, path, stored.bookie_id, identity, known)


async def _move(directory: RestingDirectory, known: KnownBookie | None) -> None:
    """Write a MANIFEST with the new path. A moved directory gets a new id (ADR 37).

    If an earlier move was interrupted, the record has the id and the counter from before that move.
    Both are kept, so that a later run with the original directory is detected.
    """
    require_own_directory(directory.shared)
    before, shared = directory.manifest, directory.shared
    directories = () if known is None else known.directories
    was_interrupted = before.previous_id in [each.directory_id for each in directories]
    moved = replace(
        before,
        directory_id=shared.files.random_bytes(8).hex(),
        previous_id=before.previous_id if was_interrupted else before.directory_id,
        path=shared.files.path,
        changes=before.changes + (not was_interrupted),
        journals=(),
    )
    await shared.store.commit(lambda: moved, shared.states)


async def _write_cookie(files: FileSystem, data: bytes) -> None:
    file = await files.open(NEW_COOKIE_NAME, create=True)
    try:
        await file.truncate(0)
        await file.write(0, (data,))
        await file.datasync()
    finally:
        await file.close()
    await files.rename(NEW_COOKIE_NAME, COOKIE_NAME)
    await files.sync_directory()


async def _write_store(
    stores: MetadataStores, stored: Stored, identities: Sequence[DirectoryIdentity], cookie: Cookie
) -> None:
    if any(identity.changes == 0 for identity in identities) and stored.known is None:
        # Only an older release has used the directory, so there are no counters to record yet.
        await stores.registration.write_cookie(
            cookie.bookie_id, cookie.encode(), stored.cookie_version
        )
        return
    await stores.known_bookies.write_with_cookie(
        cookie.bookie_id,
        known_bookie(identities),
        stored.record_version,
        cookie.encode(),
        stored.cookie_version,
    )
