"""Checks the digests of entries that a bookie holds or gets from another bookie."""

from __future__ import annotations

from ledgerlog_spark.errors import WireFormatError
from ledgerlog_spark.model import NO_ENTRY, DigestType, LedgerMetadata
from ledgerlog_spark.wire.entry import EntryCodec, decode_entry_header


class Digests:
    """The digests of one ledger.

    Old metadata of BookKeeper has no password. Without a password, a digest of the type HMAC cannot
    be checked. Then a stored entry of this bookie counts as intact if its header is correct,
    because the file also has a checksum of the entry. If the digest cannot be checked, an entry
    from another bookie counts as damaged.
    """

    def __init__(self, ledger_id: int, metadata: LedgerMetadata) -> None:
        self._ledger_id = ledger_id
        self._codec = EntryCodec(metadata.digest_type, metadata.password)
        self.can_be_checked = metadata.has_password or metadata.digest_type is not DigestType.HMAC

    def is_intact(self, entry_id: int, stored: bytes) -> bool:
        """Return whether bytes from another bookie are this entry, as its writer sent it."""
        if not self.can_be_checked:
            return False
        try:
            self._codec.decode(stored, self._ledger_id, entry_id)
        except WireFormatError:
            return False
        return True

    def is_held_intact(self, entry_id: int, stored: bytes) -> bool:
        """Return whether bytes from this bookie's files are this entry."""
        if self.can_be_checked:
            return self.is_intact(entry_id, stored)
        try:
            header = decode_entry_header(stored)
        except WireFormatError:
            return False
        is_named = header[:2] == (self._ledger_id, entry_id)
        return is_named and header.last_add_confirmed >= NO_ENTRY
