package io.ledgerlog.spark.read

import io.ledgerlog.spark.wire.EntrySlices

/** Consecutive entries of a ledger that a task reads, both ends inclusive.
  *
  * @param place
  *   the number of the part in the task
  * @param entrySizeBytes
  *   the expected payload of an entry
  * @param slices
  *   the parts of the entries to read, if not whole entries; an entry may be whole even so
  * @param isSecond
  *   whether other columns of these entries were read before, so that the entries are counted
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
