package io.ledgerlog.spark.scan

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.ScanRange

/** Selects the wanted rows of a range's entries, and checks that the entries have the listed rows.
  *
  * It does the same as `RowCutter` in `ledgerlog_spark/log/reading/listed_rows.py`.
  */
final class RowCutter(range: ScanRange) {
  private var nextRow = range.entryRows.map(_._1)

  /** The wanted rows of the next entry, half-open. */
  def take(entryId: Long, firstRow: Long, rows: Int): (Int, Int) = {
    if (firstRow < 0 || nextRow.exists(_ != firstRow)) {
      val expected =
        nextRow.fold("this source wrote no such entry")(row => s"$row was expected")
      throw LedgerLogException.wireFormat(
        s"entry $entryId of ledger ${range.ledgerId} has $firstRow as its first row: $expected. " +
          s"The ledger is not what log '${range.log}' lists."
      )
    }
    nextRow = Some(firstRow + rows)
    val first = range.rangeOffset + firstRow
    val begin = Math.min(rows.toLong, Math.max(0L, range.startOffset - first))
    val end = Math.max(begin, Math.min(rows.toLong, range.endOffset - first))
    (begin.toInt, end.toInt)
  }

  /** Throw an exception unless all listed rows were found. */
  def finish(): Unit = range.entryRows.foreach { case (_, end) =>
    if (!nextRow.contains(end))
      throw LedgerLogException.wireFormat(
        s"entries ${range.firstEntryId} to ${range.lastEntryId} of ledger ${range.ledgerId} hold " +
          s"rows up to ${nextRow.getOrElse(-1)} of their range, and those up to $end are listed. " +
          s"The ledger is not what log '${range.log}' lists."
      )
  }
}
