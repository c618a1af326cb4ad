package io.ledgerlog.spark.read

/** Consecutive entries of a ledger that a task reads, both ends inclusive.
  *
  * @param place
  *   the number of the part in the task
  * @param entrySizeBytes
  *   the expected payload of an entry
  */
final case class ReadPart(
    place: Int,
    log: String,
    ledgerId: Long,
    firstEntryId: Long,
    lastEntryId: Long,
    entrySizeBytes: Long
)
