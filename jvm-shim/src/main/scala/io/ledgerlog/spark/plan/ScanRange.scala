package io.ledgerlog.spark.plan

/** Consecutive entries of one listed range, for one task. The fields are those of `ScanRange` in
  * `ledgerlog_spark/datasource/scan/ranges.py`.
  *
  * @param commitTimes
  *   for each commit the offset after its last row, and its time in ms since 1970 if it is known
  * @param slicesEntryId
  *   the index entry, which may list the slices of the entries; only if the planner expects that
  *   slices have clearly fewer bytes than whole entries
  * @param entryRows
  *   the numbers of the entries' rows in the listed range, half-open, if they are known
  * @param isSearched
  *   whether the task first finds the entries with the wanted rows by their headers
  */
final case class ScanRange(
    log: String,
    ledgerId: Long,
    firstEntryId: Long,
    lastEntryId: Long,
    rows: Long,
    sizeBytes: Long,
    schemaId: Int,
    rangeOffset: Long,
    startOffset: Long,
    endOffset: Long,
    commitTimes: Seq[(Long, Option[Long])],
    indexEntryId: Long,
    entryRows: Option[(Long, Long)],
    form: String,
    isSearched: Boolean,
    slicesEntryId: Long = ScanRange.NoEntry
) {
  def entries: Long = lastEntryId - firstEntryId + 1

  def hasIndex: Boolean = indexEntryId != ScanRange.NoEntry
}

object ScanRange {
  val NoEntry: Long = -1

  /** The forms of entries, as `EntryForm` in `ledgerlog_spark/log/reading/listed_rows.py`: record
    * batches of a transactional log, and records or rows of a leader log.
    */
  val ArrowStream = "arrow stream"
  val LeaderRecords = "leader records"
  val LeaderRows = "leader rows"
}
