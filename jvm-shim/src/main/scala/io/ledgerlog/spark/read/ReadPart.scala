package io.ledgerlog.spark.read

import io.ledgerlog.spark.wire.EntrySlices

/** Consecutive entries of a ledger that a task reads, both ends inclusive.
  *
  * @param place
  *   the number of the part in the task
  * @param entrySizeBytes
  *   the expected payload of an entry
  * @param slices
  *   the parts of the entries to read, if not whole entries; some entries may still arrive whole
  * @param isSecond
  *   whether other columns of these entries were read and counted before
  */
final case class ReadPart(
    place: Int,
    log: String,
    ledgerId: Long,
    firstEntryId: Long,
    lastEntryId: Long,
    entrySizeBytes: Long,
    slices: Option[EntrySlices] = None,
    isSecond: Boolean = false
)
