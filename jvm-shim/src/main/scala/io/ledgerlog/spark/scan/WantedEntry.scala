package io.ledgerlog.spark.scan

import io.ledgerlog.spark.arrow.EntryRows
import io.ledgerlog.spark.plan.ScanRange
import io.ledgerlog.spark.read.Received

/** An entry of a range, and its wanted rows, half-open. The holder calls `release` once. */
final case class WantedEntry(
    range: ScanRange,
    received: Received,
    rows: EntryRows,
    from: Int,
    until: Int
) {
  def release(): Unit =
    try rows.close()
    finally received.release()
}
