"""Changes of a head that are the same done twice: truncation, properties (LOGS.md#U1-U3).

No producer stands behind them, and those that make no version move no offset (LOGS.md#U2). What a
change wants is looked for in the head before it is made, so an unknown outcome needs no settling:
read again, and if the head is not as wanted yet, change it then. An attempt that is still on its
way compares the head with a version that either is still there, and then one of the two attempts
fails, or is gone, and then the late one does.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING, cast

from ledgerlog_spark.errors import (
    ConcurrentCommitError,
    LedgerLogError,
    LedgerNotFoundError,
    MetadataUnknownError,
)
from ledgerlog_spark.protocol.ledger.messages import MetadataOutcome
from ledgerlog_spark.protocol.log.machine import NOTHING, token_after
from ledgerlog_spark.protocol.log.messages import (
    AskedTime,
    LogEffects,
    LogReply,
    PagesRead,
    PagesWritten,
    R_co,
    ReadPages,
    WriteHead,
    WritePages,
)
from ledgerlog_spark.protocol.log.read.versions import HeadReader, ReadPhase

if TYPE_CHECKING:
    from ledgerlog_spark.model import Version
    from ledgerlog_spark.protocol.log.commit.plan import HeadChange
    from ledgerlog_spark.protocol.log.state.pages import Loaded, PageRequest
    from ledgerlog_spark.protocol.log.state.records import LogHead

ATTEMPTS_MAX = 100
"""Conflicts and unknown outcomes after which a change gives up."""


class HeadChanger(HeadReader[R_co]):
    """Reads the head, and changes it by compare-and-swap until it is as wanted.

    What overrides `_done` ends the machine when the head is as wanted, or calls `_replace_head`;
    `_changed` is asked for the result when that got through.
    """

    asked_time = AskedTime.RECENT
    __slots__ = (
        "_attempts", "_change", "_is_unsure", "_listed", "_new_head", "_token", "_unlisted",
        "_wanted",
    )  # fmt: skip

    def __init__(self, log: str, *, token: str) -> None:
        """Machine of one change.

        Args:
            log: Name, for messages.
            token: 32 random hexadecimal digits; later attempts count on from it.
        """
        super().__init__(log)
        self._token = token
        self._attempts = 0
        self._is_unsure = False
        self._change: HeadChange | None = None
        self._wanted: tuple[PageRequest, ...] = ()
        self._new_head: LogHead | None = None
        self._unlisted: tuple[int, ...] = ()
        self._listed: tuple[int, ...] = ()

    @property
    def may_write(self) -> bool:
        """Whether an attempt is out, or got no answer: it may change the head at any time."""
        return self._is_unsure or (self.is_waiting and self.phase is ReadPhase.WRITE_HEAD)

    def leave(self) -> bool:
        """Take no reply any more: the one that is out was refused. Whether no attempt is left."""
        self._waiting_for = NOTHING
        return not self.may_write

    @abstractmethod
    def _changed(self, head: LogHead) -> R_co:
        """The machine's result, now that `head` is the log's."""

    def _replace_head(
        self,
        change: HeadChange,
        unlisted: tuple[int, ...] = (),
        listed: tuple[int, ...] = (),
    ) -> LogEffects[R_co]:
        """Carry out a change of the head that was read.

        Args:
            change: Of that head.
            unlisted: Ledgers that no retained version names from then on.
            listed: Ledgers that a leader made, and that the list names from then on.
        """
        self._change = change
        self._unlisted = unlisted
        self._listed = listed
        self._wanted = change.pages_to_merge()
        if not self._wanted:
            return self._build({})
        self.phase = ReadPhase.MERGE
        return self._ask(partial(ReadPages, pages=self._wanted))

    def _step(self, reply: LogReply) -> LogEffects[R_co]:
        match self.phase:
            case ReadPhase.MERGE:
                return self._on_merge_pages(cast("PagesRead", reply))
            case ReadPhase.WRITE_PAGES:
                return self._on_pages_written(cast("PagesWritten", reply))
            case ReadPhase.WRITE_HEAD:
                return self._on_head_written(reply)
            case _:
                return super()._step(reply)

    def _on_merge_pages(self, reply: PagesRead) -> LogEffects[R_co]:
        if reply.outcome is MetadataOutcome.GONE:
            assert self._head is not None
            self._missed_token = self._head.token  # missing under the same head again, it is lost
            return self._again()
        if reply.outcome is not MetadataOutcome.OK:
            raise self._read_error(reply.outcome)
        places = ((page.ref.token, page.ref.number) for page in self._wanted)
        return self._build(dict(zip(places, reply.pages, strict=True)))

    def _build(self, loaded: Loaded) -> LogEffects[R_co]:
        assert self._change is not None
        self._new_head, pages = self._change.build(self._token, loaded)
        if not pages:
            return self._write(None)
        self.phase = ReadPhase.WRITE_PAGES
        return self._ask(partial(WritePages, token=self._token, pages=pages))

    def _on_pages_written(self, reply: PagesWritten) -> LogEffects[R_co]:
        if reply.outcome is MetadataOutcome.OK:
            return self._write(reply.version)
        if reply.outcome in {MetadataOutcome.CONFLICT, MetadataOutcome.UNKNOWN}:
            return self._again()
        raise self._read_error(reply.outcome)

    def _write(self, pages_version: Version | None) -> LogEffects[R_co]:
        assert self._head_version is not None
        assert self._new_head is not None
        self.phase = ReadPhase.WRITE_HEAD
        return self._ask(
            partial(
                WriteHead,
                token=self._token,
                head=self._new_head,
                head_version=self._head_version,
                pages_version=pages_version,
                unlisted=self._unlisted,
                listed=self._listed,
            )
        )

    def _on_head_written(self, reply: LogReply) -> LogEffects[R_co]:
        if reply.outcome is MetadataOutcome.OK:
            assert self._new_head is not None
            return self._finish(self._changed(self._new_head))
        if reply.outcome is MetadataOutcome.UNKNOWN:
            self._is_unsure = True
            return self._again()
        if reply.outcome is MetadataOutcome.CONFLICT:
            return self._again()
        if reply.outcome is MetadataOutcome.GONE:
            self._is_unsure = False
            return self._on_unlistable()
        raise self._read_error(reply.outcome)

    def _on_unlistable(self) -> LogEffects[R_co]:
        """No attempt listed what `_replace_head` was to list, and none can any more."""
        raise LedgerNotFoundError(
            f"log {self.log!r} cannot list ledger {', '.join(map(str, self._listed))}, because it "
            f"was created more than stagingTtlMs ago and is being deleted: open the log again",
            retriable=True,
            log=self.log,
            ledger_ids=self._listed,
        )

    def _fail(self, error: LedgerLogError) -> LogEffects[R_co]:
        """What forbids the change now may be what came of an attempt of unknown outcome."""
        error.definite = error.definite and not self._is_unsure
        return super()._fail(error)

    def _read_error(self, outcome: MetadataOutcome) -> LedgerLogError:
        """Not "nothing was changed" while an attempt may still be on its way."""
        if self._is_unsure:
            return MetadataUnknownError(
                f"whether log {self.log!r} was changed is unknown: try again", log=self.log
            )
        return super()._read_error(outcome)

    def _again(self) -> LogEffects[R_co]:
        """Read again what the head says by now; a token names one attempt only."""
        self._attempts += 1
        if self._attempts >= ATTEMPTS_MAX:
            raise ConcurrentCommitError(
                f"{ATTEMPTS_MAX} attempts to change log {self.log!r} were overtaken or got no "
                "answer: check the state of the log, and try again",
                log=self.log,
                retriable=True,
                definite=not self._is_unsure,
            )
        self._token = token_after(self._token)
        return self._begin()
