"""Decides whether a directory contains the newest state of its bookie.

The MANIFEST contains the id of the directory and a counter, `changes`. The counter rises at each
start, at a clean stop, and while the bookie stores data. The bookie's record in the metadata store
contains the same id and counter. The MANIFEST is written first, then the record. After that, the
bookie answers requests. So the counter of the newest directory is never smaller than the counter in
the record. An older copy has a smaller counter, unless the counter has not risen since the copy was
made. No clock is compared.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from bookie_server.core.doubt import NO_DOUBT
from bookie_server.core.manifest_codec import Manifest
from bookie_server.errors import (
    DirectoryIdentityError,
    OlderCopyError,
    RetiredBookieError,
    SwappedDirectoryError,
    UncountedDirectoryError,
)
from ledgerlog_spark.wire.known_bookie import KnownBookie, KnownDirectory


@dataclass(frozen=True, slots=True)
class DirectoryIdentity:
    """The identity of a directory, and its counters, in its MANIFEST."""

    directory_id: str = ""  # "" until the first start of a release with ids
    starts: int = 0
    changes: int = 0  # 0 until the first start of a release with counters
    previous_id: str = ""  # the id before the directory was moved; "" if it was not moved
    doubt_epoch: int = 0  # the newest epoch of doubt

    def known(self) -> KnownBookie:
        """Return the record of a bookie with only this directory."""
        return known_bookie((self,))


def known_bookie(identities: Sequence[DirectoryIdentity]) -> KnownBookie:
    """Return the record of a bookie with these directories.

    A directory without counters is left out, because an older release used it last.
    """
    return KnownBookie(
        tuple(
            KnownDirectory(each.directory_id, each.starts, each.changes, each.doubt_epoch)
            for each in identities
            if each.changes
        )
    )


@dataclass(frozen=True, slots=True)
class FoundOutside:
    """Facts about a directory that a start finds before it opens the storage of the directory.

    Attributes:
        loss: The reason why entries may be lost; "" if no entries can be lost.
        starts: The largest counter of starts in the record.
        changes: The largest counter of changes in the record.
        doubt_epoch: The newest epoch of doubt in the record.
    """

    loss: str = ""
    starts: int = 0
    changes: int = 0
    doubt_epoch: int = 0


def found_outside(known: KnownBookie | None, loss: str = "") -> FoundOutside:
    """Return the facts in a bookie's record. If the bookie has no record, `known` is None."""
    directories = () if known is None else known.directories
    return FoundOutside(
        loss,
        max((each.starts for each in directories), default=0),
        max((each.changes for each in directories), default=0),
        max((each.doubt_epoch for each in directories), default=0),
    )


def manifest_after_a_loss(known: KnownBookie | None, directory_id: str) -> Manifest:
    """Return the first MANIFEST of an empty directory that replaces the bookie's lost directory.

    The counters of the lost directory continue, and its id is kept. So this directory counts as the
    newest state of the bookie. If the lost directory is found again, it counts as an older copy.
    """
    found = found_outside(known)
    return Manifest(
        directory_id=directory_id,
        previous_id=known.directories[0].directory_id if known and known.directories else "",
        starts=found.starts,
        changes=found.changes + 1,
        check_epoch=1,
        doubt=NO_DOUBT.raised(found.doubt_epoch),
    )


class DirectoryFinding(Enum):
    """The result of comparing a directory with the bookie's record."""

    OWN = "its newest state"
    UNRECORDED = "the bookie has no record of a directory"
    RETIRED = "the bookie was taken out of service"
    UNCOUNTED = "a copy from before an upgrade, or lacks its file IDENTITY"
    SWAPPED = "another directory"
    OLDER_COPY = "an older copy"


ACCEPTED: Final = (DirectoryFinding.OWN, DirectoryFinding.UNRECORDED)
"""The findings that allow a bookie to start."""


def identity_of(manifest: Manifest) -> DirectoryIdentity:
    """Return the identity and the counters of a MANIFEST."""
    return DirectoryIdentity(
        manifest.directory_id,
        manifest.starts,
        manifest.changes,
        manifest.previous_id,
        manifest.doubt.epoch,
    )


def compare(local: DirectoryIdentity, known: KnownBookie | None) -> DirectoryFinding:
    """Compare a directory with the record of its bookie. `known` is None if there is no record."""
    if known is not None and known.is_retired:
        return DirectoryFinding.RETIRED
    if known is None or not known.directories:
        return DirectoryFinding.UNRECORDED
    return compare_directory(local, known)


def compare_directory(local: DirectoryIdentity, known: KnownBookie) -> DirectoryFinding:
    """Compare a directory with the directories of a record, even if the bookie is retired."""
    if local.changes == 0:
        return DirectoryFinding.UNCOUNTED
    each = _known_as(local, known)
    if each is None:
        return DirectoryFinding.SWAPPED
    if each.directory_id == local.directory_id:
        return _by_counter(is_newest=local.changes >= each.changes)
    # The directory was moved, which has increased its counter. So if the counters are equal, the
    # original directory was used after the move.
    return _by_counter(is_newest=local.changes > each.changes)


def compare_all(
    directories: Sequence[DirectoryIdentity], known: KnownBookie | None
) -> list[DirectoryFinding]:
    """Compare the directories of a bookie with its record.

    If two directories match the same directory of the record, the second gets `SWAPPED`.
    """
    found = [compare(local, known) for local in directories]
    if known is None:
        return found
    seen: set[str] = set()
    for number, local in enumerate(directories):
        each = _known_as(local, known)
        if each is not None and each.directory_id in seen:
            found[number] = DirectoryFinding.SWAPPED
        elif each is not None:
            seen.add(each.directory_id)
    return found


def _known_as(local: DirectoryIdentity, known: KnownBookie) -> KnownDirectory | None:
    """Return the record's directory with the current or the previous id of `local`."""
    for directory_id in (local.directory_id, local.previous_id):
        for each in known.directories:
            if each.directory_id == directory_id:
                return each
    return None


def _by_counter(*, is_newest: bool) -> DirectoryFinding:
    return DirectoryFinding.OWN if is_newest else DirectoryFinding.OLDER_COPY


def refusal(
    finding: DirectoryFinding,
    path: str,
    bookie_id: str,
    local: DirectoryIdentity,
    known: KnownBookie,
) -> DirectoryIdentityError:
    """Return the error for a directory with which the bookie must not start."""
    seen = _counters(known)
    fields: dict[str, Any] = {
        "path": path,
        "bookie_id": bookie_id,
        "directory_id": local.directory_id,
        "starts": local.starts,
        "changes": local.changes,
        "known_directory_ids": tuple(each.directory_id for each in known.directories),
        "known_starts": max((each.starts for each in known.directories), default=0),
        "known_changes": max((each.changes for each in known.directories), default=0),
    }
    if finding is DirectoryFinding.RETIRED:
        return RetiredBookieError(
            f"bookie {bookie_id} was taken out of service (`ledgerlog bookie cookie delete`), "
            f"because its data was gone. If {path} has this data, bring the bookie back: "
            f"ledgerlog bookie cookie create {path}. Otherwise use another bookie_id and a new "
            "directory",
            **fields,
        )
    if finding is DirectoryFinding.UNCOUNTED:
        return UncountedDirectoryError(
            f"{path} has no counters of bookie {bookie_id}, but the metadata store has ({seen}). "
            "It is a copy from before an upgrade, or the file IDENTITY, which `ledgerlog bookie "
            f"downgrade` wrote, is missing. {_advice(bookie_id)}",
            **fields,
        )
    if finding is DirectoryFinding.SWAPPED:
        return SwappedDirectoryError(
            f"{path} is not the directory of bookie {bookie_id}: its id is "
            f"{local.directory_id or 'missing'}, but the metadata store has {seen}. It may "
            "be the directory of another bookie, a copy that was moved, or a directory that was "
            "removed with --without-directory and is an older copy now. Check the mounts and the "
            f"path. {_advice(bookie_id)}",
            **fields,
        )
    return OlderCopyError(
        f"{older_copy(path, local, known)}. Bring the newest directory back. If it is lost, "
        "start the bookie with this copy: it then starts in doubt, and denies no entry that it "
        "may have lost",
        **fields,
    )


def equal_copy(
    path: str, bookie_id: str, local: DirectoryIdentity, known: KnownBookie | None
) -> DirectoryIdentityError | None:
    """Return the error if another process has just started with a copy of the directory, or None.

    A start increases the counter. So if the record already has the same counter, another process
    has increased the counter of a copy of the directory from the same value.
    """
    counters = {each.directory_id: each.changes for each in known.directories} if known else {}
    if counters.get(local.directory_id) != local.changes:
        return None
    return DirectoryIdentityError(
        f"another process of bookie {bookie_id} has started at the same time with a copy of "
        f"{path}: both have change {local.changes}. Only one of the two directories may be used. "
        "Stop the other process if this directory is the right one, and start the bookie again",
        path=path,
        bookie_id=bookie_id,
        directory_id=local.directory_id,
        changes=local.changes,
    )


def older_copy(path: str, local: DirectoryIdentity, known: KnownBookie) -> str:
    """Return the description of an older copy."""
    return (
        f"{path} is an older copy of the directory of the bookie: it is at start {local.starts}, "
        f"change {local.changes}, but the metadata store has {_counters(known)}. Entries and "
        "fences that are newer than the copy are missing"
    )


def missing_directory(
    bookie_id: str, directories: Sequence[DirectoryIdentity], known: KnownBookie
) -> DirectoryIdentityError:
    """Return the error for a start that lacks a directory of the bookie's record."""
    return DirectoryIdentityError(
        f"bookie {bookie_id} has more directories than it was started with: the metadata store has "
        f"{_counters(known)}. Start it with all these directories, or remove a "
        "lost directory with --without-directory",
        bookie_id=bookie_id,
        known_directory_ids=tuple(each.directory_id for each in known.directories),
        directory_ids=tuple(each.directory_id for each in directories),
    )


def _counters(known: KnownBookie) -> str:
    return (
        "no directory"
        if not known.directories
        else ", ".join(
            f"directory {each.directory_id} at start {each.starts}, change {each.changes}"
            for each in known.directories
        )
    )


def _advice(bookie_id: str) -> str:
    return (
        "Start the bookie with its newest directory. If it is lost, take the bookie out of "
        f"service: ledgerlog bookie cookie delete {bookie_id}, and start a bookie with another "
        "bookie_id and a new directory instead"
    )
