package io.ledgerlog.spark.scan

import io.ledgerlog.spark.arrow.EntryMessage
import io.ledgerlog.spark.plan.ScanRange
import io.ledgerlog.spark.read.Received

/** An entry of a range, and its wanted rows, half-open. The holder releases `received`. */
final case class WantedEntry(
    range: ScanRange,
    received: Received,
    message: EntryMessage,
    from: Int,
    until: Int
)
