"""What a store of logs promises: domain-shaped, like the ports of `metadata/ports.py`.

Reads may be stale until `sync`. Writes end as on the other ports: they return, raise
`MetadataVersionError` (definite: something was not at the version given), raise
`MetadataUnavailableError` (definite: nothing was sent), or raise `MetadataUnknownError`. Records
that cannot be read are `MetadataFormatError` or `WireFormatError`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence

    from ledgerlog_spark.metadata.ports import CancelWatch, OnChange
    from ledgerlog_spark.model import LedgerMetadata, Version, Versioned
    from ledgerlog_spark.protocol.log.messages import StagedRegistration, WriteHead
    from ledgerlog_spark.protocol.log.state.pages import PageRequest
    from ledgerlog_spark.protocol.log.state.records import LogHead, ProducerRecord


@dataclass(frozen=True, slots=True)
class MarkedLedger:
    """A ledger that no version names, and since when by the store's clock.

    Attributes:
        is_staged: It was never listed, so no reader can be using it.
        is_made: A leader made it, and may list it still.
    """

    ledger_id: int
    marked_ms: int
    is_staged: bool
    is_made: bool = False


@dataclass(frozen=True, slots=True)
class PagesNode:
    """The pages of one attempt, and when it wrote them by the store's clock."""

    token: str
    created_ms: int


class CommitQueue(Protocol):
    """Writers of one log that wait for their turn. It saves requests and protects nothing."""

    async def join(self, token: str) -> str:
        """Wait behind all that joined before; the member's name.

        The place ends with the session, or with `leave`.

        Args:
            token: Never used before.

        Raises:
            MetadataError: The store failed, or the log is gone.
        """

    async def members(self) -> Sequence[str]:
        """Names of all members, the first one first."""

    async def until_gone(self, name: str) -> bool:
        """Wait until that member is gone (true) or may be (false); give it a deadline."""

    async def leave(self, name: str) -> None:
        """End a member's place, anybody's; fine when it has ended."""


class LogStore(Protocol):
    """Heads, pages, producers and registrations of the logs of one cluster."""

    async def create_log(self, head: LogHead, pages: Sequence[bytes]) -> Versioned[LogHead]:
        """Make a log under `head.name` and `head.log_id`, in one transaction.

        A lost reply is settled by asking again: the id says whose log it is.

        Raises:
            LogExistsError: The name is taken.
            MetadataUnknownError: Not settled; creating the same log again is safe.
        """

    async def find(self, name: str) -> str:
        """The id of the log of that name; "not found" only after a sync.

        Raises:
            LogNotFoundError: There is none.
            MetadataError: There is no cluster at the root.
        """

    async def names(self) -> Sequence[str]:
        """Names of all logs, sorted."""

    async def ids(self) -> Sequence[str]:
        """Ids of all logs, deleted ones whose ledgers are not gone yet included, sorted."""

    async def delete_log(self, head: LogHead, version: Version) -> Version:
        """Free the name and replace the head (which says that it is deleted) in one transaction.

        Raises:
            MetadataVersionError: The head is at another version, or the name is not this log's.
        """

    async def remove_log(self, log_id: str) -> bool:
        """Remove a deleted log's last records; fine when they are gone.

        Returns:
            False when a ledger is still marked: the head and the marks are there.

        Raises:
            MetadataVersionError: A ledger is still registered, or a producer came back.
        """

    async def deleted_ms(self, log_id: str) -> int | None:
        """When the log was deleted by the store's clock, None while it lives."""

    async def read_head(self, log_id: str) -> Versioned[LogHead] | None:
        """The head, None when there is none (as far as this replica of the store knows)."""

    async def read_producer(self, log_id: str, app: str) -> Versioned[ProducerRecord] | None:
        """The producer record, None when there is none (as far as this replica knows)."""

    async def producers(self, log_id: str) -> Sequence[str]:
        """Names of all producers, sorted."""

    async def registered(self, log_id: str, app: str) -> Sequence[int]:
        """Ledgers registered under the producer, rising."""

    async def registered_before(self, log_id: str, app: str, epoch: int) -> Sequence[int]:
        """Those of them that were registered under an epoch before `epoch`."""

    async def staged(self, log_id: str, app: str) -> Sequence[StagedRegistration]:
        """The same, and when each was registered by the store's clock."""

    async def read_pages(
        self, log_id: str, pages: Sequence[PageRequest]
    ) -> tuple[tuple[Any, ...], ...] | None:
        """The records of each page, in that order; None when one is missing."""

    async def write_pages(self, log_id: str, token: str, pages: Sequence[bytes]) -> Version:
        """Make `pages/<token>` and the pages below it; the version that a commit checks.

        Raises:
            MetadataVersionError: The token was used before.
        """

    async def write_head(self, log_id: str, write: WriteHead) -> Version:
        """Carry out the transaction that `write` describes; the head's new version.

        Raises:
            MetadataVersionError: Head, producer record or pages' node moved. Nothing was changed.
            LedgerNotFoundError: A ledger that it lists was claimed (`claim_made`) or is deleted.
                Nothing was changed, and no change that lists the ledger ever gets through.
        """

    async def write_producer(
        self,
        log_id: str,
        app: str,
        producer: ProducerRecord,
        version: Version | None,
        deregistered: Sequence[int] = (),
        released: Sequence[int] = (),
    ) -> Version:
        """Create (`version` None) or replace a producer record, and end registrations with it.

        Each ledger deregistered gets a mark (`marked`), as never listed unless it has one. Those
        released, which are listed, get none.

        Raises:
            MetadataVersionError: It exists, or is at another version. Nothing was changed.
        """

    async def delete_producer(
        self,
        log_id: str,
        app: str,
        version: Version,
        deregistered: Sequence[int] = (),
        released: Sequence[int] = (),
    ) -> None:
        """Forget a producer and end its last registrations. Its name must never be used again.

        What becomes of the ledgers is as of `write_producer`.

        Raises:
            MetadataVersionError: It is at another version, or has other registrations. Nothing was
                changed.
        """

    async def register_ledger(
        self,
        log_id: str,
        app: str,
        epoch: int,
        version: Version,
        ledger_id: int,
        metadata: LedgerMetadata,
    ) -> Versioned[LedgerMetadata]:
        """Create a ledger's record and its registration in one transaction.

        A lost reply is settled by the token in `metadata` and by the registration.

        Args:
            log_id: Of the log.
            app: The producer.
            epoch: Of its record, kept with the registration.
            version: Of its record, which has to be still at it.
            ledger_id: From `LedgerStore.new_ids`.
            metadata: With a token.

        Raises:
            MetadataVersionError: The producer record moved. Nothing was created.
            LedgerExistsError: The id is taken by somebody else.
            MetadataUnknownError: Not settled; abandon the id.
        """

    async def make_ledger(
        self, log_id: str, ledger_id: int, metadata: LedgerMetadata
    ) -> Versioned[LedgerMetadata]:
        """Create the record of a ledger of a leader, and a mark (`is_made`), in one transaction.

        The change of the head that lists the ledger takes the mark away. A lost reply is settled as
        of `register_ledger`, with the same errors, and:

        Raises:
            LogNotFoundError: The log is gone. Nothing was created.
        """

    async def claim_made(self, log_id: str, ledger_id: int) -> None:
        """Make the mark of a ledger that was made a staged one: it cannot be listed any more.

        Fine when it has no such mark (any more).
        """

    async def touch_pages(self, log_id: str, token: str) -> Version:
        """Change the pages' node, whatever it is at, so that a commit that checks it fails.

        Raises:
            MetadataVersionError: There is no such node.
        """

    async def delete_pages(self, log_id: str, token: str, kept: Sequence[int]) -> None:
        """Delete the pages but those numbers, and the node when none is kept."""

    async def page_nodes(self, log_id: str) -> Sequence[PagesNode]:
        """All tokens that have pages, sorted."""

    async def marked(self, log_id: str) -> Sequence[MarkedLedger]:
        """All ledgers that are marked for deletion, rising."""

    async def marked_ms(self, log_id: str, ledger_id: int) -> int | None:
        """When the ledger was marked, None when it is not."""

    async def forget_mark(self, log_id: str, ledger_id: int) -> None:
        """Take back the mark of a ledger that is gone; fine when there is none."""

    async def now_ms(self, log_id: str) -> int:
        """The store's clock, of which all times of this port are; costs a write.

        Never ahead of the store: what is deleted or dropped by age is measured with it.

        Raises:
            LogNotFoundError: The log is gone.
        """

    async def recent_ms(self) -> int:
        """The store's clock as its last answer to this process told it, and the time since.

        Never ahead of the store. What is written is dated with it. Costs nothing, or a write when
        the last answer is more than 10 minutes old.

        Raises:
            MetadataError: There is no cluster at the root, or the store failed.
        """

    def clock_ms(self) -> int:
        """As `recent_ms`, however old the last answer is; 0 before the first."""

    async def created_ms(self, ledger_ids: Sequence[int]) -> Sequence[int | None]:
        """When the record of each ledger was made, by the store's clock; None when it is gone."""

    def queue(self, log_id: str) -> CommitQueue:
        """The log's writers that wait for their turn; costs no request."""

    def watch_head(self, log_id: str, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after the head changed, and after a session was replaced."""

    def watch_names(self, on_change: OnChange) -> CancelWatch:
        """Call `on_change` after a name came or went, and after a session was replaced."""

    async def sync(self) -> None:
        """Make later reads at least as new as this moment."""
