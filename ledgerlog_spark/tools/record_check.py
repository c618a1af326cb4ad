"""Finds faults in the metadata of a ledger. Pure: no I/O."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from ledgerlog_spark.model import NO_ENTRY, Fragment, LedgerMetadata, LedgerState
from ledgerlog_spark.protocol.ledger.quorum import write_set
from ledgerlog_spark.tools.findings import Severity, ToolFinding

FORMAT_NEWEST = 3


@dataclass(frozen=True, slots=True)
class KnownMembers:
    """The ids of the bookies of the cluster.

    Attributes:
        known: Ids of the bookies that have a cookie.
        registered: Ids of the bookies that are registered now.
    """

    known: frozenset[str]
    registered: frozenset[str]


def check_record(
    ledger_id: int, metadata: LedgerMetadata, members: KnownMembers
) -> Iterator[ToolFinding]:
    """Yield the findings about a record that could be decoded.

    The decoder has already checked that the first fragment begins at entry 0, that the fragments
    are ascending, that each ensemble has E bookies, and that the numbers of a closed ledger are
    within the valid limits.
    """

    def found(severity: Severity, what: str, advice: str = "") -> ToolFinding:
        return ToolFinding(severity, what, advice, ledger_id)

    if metadata.is_closed and metadata.last_entry_id == NO_ENTRY and metadata.length:
        yield found(
            Severity.WRONG,
            f"the ledger is closed without an entry, but its length is {metadata.length} bytes",
            f"look at its copies: `ledgerlog ledgers show {ledger_id} --replicas`",
        )
    for fragment in metadata.fragments:
        yield from _check_fragment(ledger_id, metadata, fragment, members)
    if metadata.is_closed:
        beyond = [f for f in metadata.fragments[1:] if f.first_entry_id > metadata.last_entry_id]
        for fragment in beyond:
            begins_at_end = fragment.first_entry_id == metadata.last_entry_id + 1
            yield found(
                Severity.NOTE if begins_at_end else Severity.WRONG,
                f"the fragment from entry {fragment.first_entry_id} is after the last entry, "
                f"{metadata.last_entry_id}",
                ""
                if begins_at_end
                else "entries may have been cut off: look for copies of them with `ledgerlog "
                "bookie dump` on its bookies",
            )
    elif metadata.state is LedgerState.IN_RECOVERY:
        yield found(
            Severity.NOTE,
            "a recovery of the ledger has begun, and has not ended",
            f"if no process recovers it, run `ledgerlog ledgers seal {ledger_id}`",
        )
    if metadata.format_version < FORMAT_NEWEST:
        yield found(
            Severity.NOTE,
            f"an old BookKeeper wrote the record, in format {metadata.format_version}",
        )


def _check_fragment(
    ledger_id: int, metadata: LedgerMetadata, fragment: Fragment, members: KnownMembers
) -> Iterator[ToolFinding]:
    where = f"the fragment from entry {fragment.first_entry_id}"
    ensemble = fragment.ensemble
    twice = sorted({name for name in ensemble if ensemble.count(name) > 1})
    if twice:
        yield ToolFinding(
            Severity.WRONG,
            f"{where} has {', '.join(twice)} twice, so its entries have fewer copies",
            "another program wrote this record; copy the entries to a new ledger",
            ledger_id,
        )
        return
    strangers = sorted(set(ensemble) - members.known)
    if strangers:
        fewest = _fewest_in_a_write_set(metadata, ensemble, members.known)
        severity = Severity.WARNING if fewest >= metadata.quorum.ack_quorum else Severity.WRONG
        yield ToolFinding(
            severity,
            f"{where} names {', '.join(strangers)}, which no cookie of the cluster names: at most "
            f"{fewest} of {metadata.quorum.write_quorum} copies of an entry are left",
            "if the data of this bookie exists, bring the bookie back with `ledgerlog bookie "
            "cookie create`; otherwise auto-recovery copies the entries to other bookies",
            ledger_id,
        )
    elif (
        away := _fewest_in_a_write_set(metadata, ensemble, members.registered)
    ) < metadata.quorum.write_quorum:
        names = ", ".join(sorted(set(ensemble) - members.registered))
        severity = Severity.NOTE if away else Severity.WARNING
        yield ToolFinding(
            severity,
            f"{where} has bookies that do not run: {names}. At least {away} of "
            f"{metadata.quorum.write_quorum} bookies of each entry run",
            "" if away else "start these bookies: some entries cannot be read now",
            ledger_id,
        )


def _fewest_in_a_write_set(
    metadata: LedgerMetadata, ensemble: tuple[str, ...], names: Collection[str]
) -> int:
    """Return, over all write sets, the smallest number of a write set's bookies in `names`."""
    quorum = metadata.quorum
    return min(
        len({ensemble[index] for index in write_set(quorum, residue)} & set(names))
        for residue in range(quorum.ensemble_size)
    )
