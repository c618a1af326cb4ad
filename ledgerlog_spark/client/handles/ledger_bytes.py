"""Encodes the entries of one ledger, and verifies stored entries. Each run is encoded once."""

from __future__ import annotations

from collections.abc import Sequence

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import NO_ENTRY, DigestType
from ledgerlog_spark.protocol.ledger.entry_batch import EntryBatch
from ledgerlog_spark.protocol.ledger.messages import (
    Run,
    SendAdd,
    SendReadSlices,
    StoredEntry,
)
from ledgerlog_spark.transport.port import AddRun, ReadSlices
from ledgerlog_spark.wire.digests import master_key
from ledgerlog_spark.wire.entry import EntryCodec


class LedgerBytes:
    """Encodes and verifies one ledger's entries, with its digest and its master key."""

    __slots__ = ("codec", "has_explicit_lac", "ledger_id", "master_key")

    def __init__(
        self,
        ledger_id: int,
        digest_type: DigestType,
        password: bytes,
        *,
        has_explicit_lac: bool = False,
    ) -> None:
        self.ledger_id = ledger_id
        self.has_explicit_lac = has_explicit_lac
        self.codec = EntryCodec(digest_type, password)
        self.master_key = master_key(password)

    def add_run(self, effect: SendAdd) -> AddRun:
        """Return the add request of a run for one bookie.

        All requests of a run share the same encoded bytes.
        """
        run = effect.run
        whole = run.attachment
        if whole is None:
            whole = run.attachment = self._encode(run, is_recovery=effect.is_recovery)
        assert isinstance(whole, AddRun)
        assert whole.is_recovery is effect.is_recovery
        if effect.entry_ids is None:
            return whole
        first = run.first_entry_id
        return AddRun(
            ledger_id=self.ledger_id,
            entry_ids=effect.entry_ids,
            entries=[whole.entries[entry_id - first] for entry_id in effect.entry_ids],
            master_key=self.master_key,
            is_recovery=effect.is_recovery,
        )

    def verified(self, stored: bytes | None, entry_id: int) -> StoredEntry | None:
        """Decode a stored entry; return None if it is not the requested entry, or is not valid."""
        if stored is None:
            return None
        try:
            _, found_id, confirmed, length, payload = self.codec.decode(
                stored, self.ledger_id, entry_id
            )
        except WireFormatError:
            return None
        return StoredEntry(found_id, confirmed, length, payload)

    def verified_batch(self, stored: Sequence[bytes], first_entry_id: int) -> EntryBatch | None:
        """Return the entries before the first invalid entry; None if no entry is before it."""
        columns = self.codec.decode_prefix(stored, self.ledger_id, first_entry_id)
        return None if columns is None else EntryBatch(first_entry_id, *columns)

    def slice_read(self, effect: SendReadSlices) -> ReadSlices:
        """Return the request that reads slices.

        Its offsets count from the start of a stored entry.
        """
        before = self.codec.overhead_bytes
        ids = range(effect.first_entry_id, effect.last_entry_id + 1)
        return ReadSlices(
            ledger_id=self.ledger_id,
            entries=[
                (
                    entry_id,
                    [(before + at, length) for at, length in effect.slices.ranges_of(entry_id)],
                )
                for entry_id in ids
            ],
            size_bytes_max=effect.size_bytes_max,
        )

    def verified_slices(
        self, effect: SendReadSlices, received: Sequence[bytes]
    ) -> EntryBatch | None:
        """Return the entries before the first invalid entry; None if no entry is before it."""
        payloads = []
        ids = range(effect.first_entry_id, effect.last_entry_id + 1)
        for entry_id, data in zip(ids, received, strict=False):
            payload = effect.slices.payload_of(entry_id, data)
            if payload is None:
                break
            payloads.append(payload)
        if not payloads:
            return None
        count = len(payloads)
        return EntryBatch(effect.first_entry_id, (NO_ENTRY,) * count, (0,) * count, tuple(payloads))

    def _encode(self, run: Run, *, is_recovery: bool) -> AddRun:
        return AddRun(
            ledger_id=self.ledger_id,
            entry_ids=range(run.first_entry_id, run.last_entry_id + 1),
            entries=self.codec.encode_run(
                ledger_id=self.ledger_id,
                first_entry_id=run.first_entry_id,
                last_add_confirmed=run.last_add_confirmed,
                length=run.length_before,
                payloads=run.payloads,
            ),
            master_key=self.master_key,
            is_recovery=is_recovery,
        )
