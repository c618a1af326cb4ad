"""Creates a ledger in three steps: checks its description, chooses bookies, writes the metadata.

No bookie is contacted, because the first add creates the ledger on a bookie.
"""

from __future__ import annotations

import difflib
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

from ledgerlog_spark.client.arguments import check_optional
from ledgerlog_spark.client.bookies import not_enough_bookies
from ledgerlog_spark.client.handles.lac_announcer import announced
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.errors import (
    ConfigurationError,
    LedgerExistsError,
    LocalProtocolError,
    MetadataUnknownError,
    UnauthorizedError,
)
from ledgerlog_spark.model import (
    PASSWORD_SIZE_BYTES_MAX,
    DigestType,
    Fragment,
    LedgerMetadata,
    Quorum,
    Versioned,
)
from ledgerlog_spark.protocol.placement.absent_members import place_new
from ledgerlog_spark.protocol.placement.place import Unplaceable
from ledgerlog_spark.wire.znodes import LEDGER_ID_MAX

_logger = logging.getLogger(__name__)

CreateRecord = Callable[[int, LedgerMetadata], Awaitable[Versioned[LedgerMetadata]]]
"""A function that creates the metadata of the ledger with this id, and other nodes in the same
transaction. It raises the errors of `LedgerStore.create`."""

IDS_TRIED_MAX = 3
"""Maximum number of ids that are tried. A further id is tried if a ledger already has the id."""

DRAWN_MAX = 4_096
"""Maximum number of unused ids that a client keeps. Beyond this number, it drops the oldest ids."""


@dataclass(frozen=True, slots=True)
class LedgerSpec:
    """Description of a new ledger. `LedgerClient.create_ledger` explains the fields."""

    quorum: Quorum
    digest_type: str | DigestType = "CRC32C"
    password: bytes = b""
    custom_metadata: Mapping[str, bytes] | None = None
    explicit_lac: bool = False
    changes_ensemble: bool = True


def checked_digest_type(digest_type: str | DigestType) -> DigestType:
    """Return the digest type with this name.

    For a wrong name, the error suggests a similar name.
    """
    if isinstance(digest_type, DigestType):
        return digest_type
    names = [kind.name for kind in DigestType]
    name = str(digest_type).upper()
    if name in names:
        return DigestType[name]
    near = difflib.get_close_matches(name, names, 1, 0.3)
    raise ConfigurationError(
        f"digest_type {digest_type!r} does not exist; choose one of {', '.join(names)}"
        + (f": did you mean {near[0]}?" if near else ""),
        key="digest_type",
        value=digest_type,
    )


def checked_password(password: object) -> bytes:
    """Return the password unchanged, or raise an error if it is not bytes."""
    if not isinstance(password, bytes):
        raise ConfigurationError(
            f'password must be bytes, got {type(password).__name__}: write b"..." or encode it',
            key="password",
        )
    return password


def checked_new_password(password: object) -> bytes:
    """Return the password unchanged, or raise an error if it is not valid for a new ledger."""
    checked = checked_password(password)
    if len(checked) > PASSWORD_SIZE_BYTES_MAX:
        raise ConfigurationError(
            f"password has {len(checked):,} bytes, but the maximum is "
            f"{PASSWORD_SIZE_BYTES_MAX:,}: use a shorter password, or a digest of it",
            key="password",
        )
    return checked


def check_ledger_password(ledger_id: int, metadata: LedgerMetadata, password: bytes) -> None:
    """Raise UnauthorizedError if the ledger has a password and it differs from `password`."""
    if metadata.has_password and metadata.password != password:
        raise UnauthorizedError(
            f"ledger {ledger_id}: wrong password; use the password that it was created with",
            ledger_id=ledger_id,
        )


def checked_ledger_id(ledger_id: Any) -> int:
    """Return the ledger id as an int, or raise an error if no ledger can have this id."""
    # Integers of other types are accepted, because an id from a table is often a numpy integer.
    if not hasattr(ledger_id, "__index__") or isinstance(ledger_id, bool):
        raise ConfigurationError(
            f"ledger_id must be of type int, got {ledger_id!r}", key="ledger_id", value=ledger_id
        )
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise ConfigurationError(
            f"ledger id {ledger_id} is not between 0 and {LEDGER_ID_MAX}; "
            "`ledgerlog ledgers list` shows all ledgers",
            key="ledger_id",
            value=ledger_id,
        )
    return index(ledger_id)


def _checked_custom(custom: Mapping[Any, Any]) -> dict[str, bytes]:
    for name, value in custom.items():
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise ConfigurationError(
                f"custom_metadata must map str to bytes, but maps {name!r} to "
                f"{type(value).__name__}",
                key="custom_metadata",
            )
    return dict(custom)


class DrawnIds:
    """The ledger ids that a client got from the store and has not used. Each id can be used once.

    An id is never used for a second ledger, even if the first ledger was deleted. A bookie may
    still have entries of the first ledger, and recovery of the second ledger would find them,
    because an entry contains only the ledger id.
    """

    def __init__(self) -> None:
        self._ids: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._ids)

    def add(self, ledger_ids: Iterable[int]) -> None:
        """Add ids that the store returned."""
        self._ids |= dict.fromkeys(ledger_ids)
        while len(self._ids) > DRAWN_MAX:
            del self._ids[next(iter(self._ids))]

    def use(self, ledger_id: int) -> int:
        """Return an unused id, and remove it from this object.

        Raise an error if it is not in this object.
        """
        if ledger_id not in self._ids:
            raise LocalProtocolError(
                f"ledger id {ledger_id} was not returned by new_ledger_ids of this client, or was "
                "used before: pass an unused id, or None",
                ledger_id=ledger_id,
            )
        del self._ids[ledger_id]
        return ledger_id


@dataclass(frozen=True, slots=True)
class Chosen:
    """The bookies of a new ledger. `absent` contains those of them that are not registered."""

    ensemble: tuple[str, ...]
    absent: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NewLedger:
    """A new ledger without entries, and the bookies of its ensemble that are absent."""

    ledger_id: int
    record: Versioned[LedgerMetadata]
    absent: tuple[str, ...]


async def placed(services: Services, quorum: Quorum) -> Chosen:
    """Choose an ensemble of writable bookies at random within the policy of placement.

    If there are too few writable bookies, the ensemble also names bookies that are not registered.
    But each write set has at least Qa writable bookies (PROTOCOL.md#B21).

    Raises:
        NotEnoughBookiesError: There is no such ensemble. The error contains the needed and the
            found number.
    """
    found = await services.candidates(is_fresh=False)
    result = place_new(quorum, found.names, (), found.bookies, found.policy)
    absent: tuple[str, ...] = ()
    if isinstance(result, Unplaceable):  # a bookie may have registered after the list was cached
        absent = await services.absent_bookies()
        found = await services.candidates()
        result = place_new(quorum, found.names, absent, found.bookies, found.policy)
    if isinstance(result, Unplaceable):
        raise not_enough_bookies(quorum, found, result)
    services.bookies.report(result.ensemble, quorum)
    named = tuple(name for name in result.ensemble if name in absent)
    others = services.bookies.absence_lines.suffix(("new", named)) if named else None
    if others is not None:
        _logger.warning(
            "a new ledger names %s, which %s not registered, because there are too few other "
            "bookies. Entries have fewer copies until %s back: start the missing bookies%s",
            " and ".join(named),
            "is" if len(named) == 1 else "are",
            "it is" if len(named) == 1 else "they are",
            others,
        )
    return Chosen(result.ensemble, named)


async def create_record(
    services: Services,
    spec: LedgerSpec,
    *,
    drawn_id: int | None = None,
    create: CreateRecord | None = None,
) -> NewLedger:
    """Create a ledger without entries.

    If `create` is given, it is called instead of `LedgerStore.create`. This function raises the
    errors of `LedgerClient.create_ledger`. LedgerExistsError means that another ledger has
    `drawn_id`, because the cluster's counter of ids was reset to a smaller value.
    """
    kind = checked_digest_type(spec.digest_type)
    checked_new_password(spec.password)
    check_optional("custom_metadata", spec.custom_metadata, Mapping)
    custom = _checked_custom(announced(spec.custom_metadata, explicit_lac=spec.explicit_lac))
    bookies = await placed(services, spec.quorum)
    metadata = LedgerMetadata(
        quorum=spec.quorum,
        fragments=(Fragment(0, bookies.ensemble),),
        digest_type=kind,
        password=spec.password,
        created_ms=time.time_ns() // 1_000_000,
        custom=custom,
        token=services.random.getrandbits(62),
    )
    store_create = create or services.ledgers.create
    for attempt in range(IDS_TRIED_MAX):
        chosen = (await services.ledgers.new_ids())[0] if drawn_id is None else drawn_id
        try:
            return NewLedger(chosen, await store_create(chosen, metadata), bookies.absent)
        except LedgerExistsError:
            if drawn_id is not None or attempt + 1 == IDS_TRIED_MAX:
                raise
    raise MetadataUnknownError("no free ledger id was found")
