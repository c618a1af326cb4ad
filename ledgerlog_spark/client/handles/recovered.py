"""Runs the recovery of a ledger."""

from __future__ import annotations

from ledgerlog_spark.client.errors_from_codes import error_from_failure
from ledgerlog_spark.client.handles.ledger_bytes import LedgerBytes
from ledgerlog_spark.client.host.effects import result_of
from ledgerlog_spark.client.services import Services
from ledgerlog_spark.errors import LedgerLogError, LedgerRecoveryError
from ledgerlog_spark.model import LedgerMetadata
from ledgerlog_spark.protocol.ledger.messages import (
    HolesLeft,
    Indication,
    LedgerClosed,
    LedgerFailed,
)
from ledgerlog_spark.protocol.ledger.recover.recovery import LedgerRecovery


async def recovered(
    services: Services,
    ledger_id: int,
    metadata: LedgerMetadata,
    password: bytes,
    floor_entry_id: int,
) -> LedgerMetadata:
    """Recover and close a ledger, and return its metadata.

    Args:
        services: Services of the client.
        ledger_id: Id of the ledger.
        metadata: The metadata of the ledger, whose state is not CLOSED.
        password: The password that the ledger was created with.
        floor_entry_id: Highest entry id that a log or another durable list contains.

    Raises:
        LedgerLogError: The errors of `LedgerClient.seal`.
    """

    def take(indication: Indication) -> LedgerMetadata | LedgerLogError | None:
        if isinstance(indication, HolesLeft):
            services.holes.add(ledger_id, indication.metadata, indication.holes)
        if isinstance(indication, LedgerFailed):
            return error_from_failure(ledger_id, indication)
        return indication.versioned.value if isinstance(indication, LedgerClosed) else None

    return await result_of(
        LedgerRecovery(
            ledger_id=ledger_id,
            password=metadata.password,
            floor_entry_id=floor_entry_id,
            settings=services.settings.recovery,
        ),
        services,
        LedgerBytes(ledger_id, metadata.digest_type, password),
        take=take,
        stalled=lambda why: LedgerRecoveryError(
            f"ledger {ledger_id} was not sealed: {why}; seal it again", ledger_id=ledger_id
        ),
    )
