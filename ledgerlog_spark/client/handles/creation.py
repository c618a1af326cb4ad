"""A new ledger: metadata checked, placed on writable bookies and created in the metadata store.

No bookie is contacted: bookies learn of a ledger with its first add.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from operator import index
from typing import Any

from ledgerlog_spark.client.handles.lac_announcer import announced
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.errors import (
    ConfigurationError,
    LedgerExistsError,
    MetadataUnknownError,
    NotEnoughBookiesError,
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
from ledgerlog_spark.protocol.ledger.placement import choose_ensemble
from ledgerlog_spark.wire.znodes import LEDGER_ID_MAX

CreateRecord = Callable[[int, LedgerMetadata], Awaitable[Versioned[LedgerMetadata]]]
"""Creates the metadata of a ledger id, and the nodes of the same transaction.

Raises what `LedgerStore.create` raises."""

IDS_TRIED_MAX = 3
"""Ids to try when another client took one that the store returned."""


@dataclass(frozen=True, slots=True)
class LedgerSpec:
    """Description of a new ledger; the fields are explained in `LedgerClient.create_ledger`.

    Attributes:
        custom_metadata: Kept with the metadata; None for none.
    """

    quorum: Quorum
    digest_type: str | DigestType = "CRC32C"
    password: bytes = b""
    custom_metadata: Mapping[str, bytes] | None = None
    explicit_lac: bool = False
    changes_ensemble: bool = True


def checked_digest_type(digest_type: str | DigestType) -> DigestType:
    """The digest type of that name.

    Raises:
        ConfigurationError: It does not exist; names the nearest.
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
    """The password, unchanged.

    Raises:
        ConfigurationError: It is not bytes.
    """
    if not isinstance(password, bytes):
        raise ConfigurationError(
            f'password is bytes, not {type(password).__name__}: write b"..." or encode it',
            key="password",
        )
    return password


def checked_new_password(password: object) -> bytes:
    """The password, unchanged, for new ledgers.

    Raises:
        ConfigurationError: It is not bytes, or too long.
    """
    checked = checked_password(password)
    if len(checked) > PASSWORD_SIZE_BYTES_MAX:
        raise ConfigurationError(
            f"password has {len(checked):,} bytes, and may have {PASSWORD_SIZE_BYTES_MAX:,}: take "
            "a shorter one, or a digest of it",
            key="password",
        )
    return checked


def check_ledger_password(ledger_id: int, metadata: LedgerMetadata, password: bytes) -> None:
    """Raises UnauthorizedError unless the ledger has this password, or none."""
    if metadata.has_password and metadata.password != password:
        raise UnauthorizedError(
            f"ledger {ledger_id}: wrong password; use the one it was created with",
            ledger_id=ledger_id,
        )


def checked_ledger_id(ledger_id: Any) -> int:
    """The ledger id, as an int.

    Raises:
        ConfigurationError: No ledger can have it.
    """
    # Not int alone: an id from a table is often a number of numpy.
    if not hasattr(ledger_id, "__index__") or isinstance(ledger_id, bool):
        raise ConfigurationError(
            f"ledger_id is of type int, got {ledger_id!r}", key="ledger_id", value=ledger_id
        )
    if not 0 <= ledger_id <= LEDGER_ID_MAX:
        raise ConfigurationError(
            f"ledger id {ledger_id}: ids go from 0 to {LEDGER_ID_MAX}; `ledgerlog ledgers list` "
            "shows what there is",
            key="ledger_id",
            value=ledger_id,
        )
    return index(ledger_id)


def _checked_custom(custom: Mapping[Any, Any]) -> dict[str, bytes]:
    for name, value in custom.items():
        if not isinstance(name, str) or not isinstance(value, bytes):
            raise ConfigurationError(
                f"custom_metadata maps str to bytes; {name!r} maps to {type(value).__name__}",
                key="custom_metadata",
            )
    return dict(custom)


async def placed(services: Services, quorum: Quorum) -> tuple[str, ...]:
    """An ensemble of writable bookies, chosen at random.

    Raises:
        NotEnoughBookiesError: Fewer writable bookies than the ensemble; names both numbers.
        MetadataUnavailableError: The registration cannot be read in time.
    """
    try:
        return choose_ensemble(quorum, await services.candidates(is_fresh=False))
    except NotEnoughBookiesError:  # one may have registered a moment ago
        return choose_ensemble(quorum, await services.candidates())


async def create_record(
    services: Services,
    spec: LedgerSpec,
    *,
    drawn_id: int | None = None,
    create: CreateRecord | None = None,
) -> tuple[int, Versioned[LedgerMetadata]]:
    """The id and the metadata of a new, empty ledger.

    Args:
        services: Services of the client.
        spec: Describes the ledger.
        drawn_id: Drawn before for this ledger; None draws one now.
        create: Creates the metadata instead of the ledger store.

    Raises:
        ConfigurationError: A bad argument.
        NotEnoughBookiesError: Fewer writable bookies than the ensemble; names both numbers.
        LedgerExistsError: `drawn_id` is taken: the cluster's counter was set back.
        MetadataUnavailableError: Nothing was created.
        MetadataUnknownError: An empty ledger with an unknown id may have been created.
    """
    kind = checked_digest_type(spec.digest_type)
    checked_new_password(spec.password)
    custom = _checked_custom(announced(spec.custom_metadata, explicit_lac=spec.explicit_lac))
    metadata = LedgerMetadata(
        quorum=spec.quorum,
        fragments=(Fragment(0, await placed(services, spec.quorum)),),
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
            return chosen, await store_create(chosen, metadata)
        except LedgerExistsError:
            if drawn_id is not None or attempt + 1 == IDS_TRIED_MAX:
                raise
    raise MetadataUnknownError("no free ledger id was found")
