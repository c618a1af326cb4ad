package io.ledgerlog.spark.scan

import io.ledgerlog.spark.plan.ScanRange
import io.ledgerlog.spark.wire.EntrySlices

/** How a task reads a range.
  *
  * @param slices
  *   the slices of the columns that the scan needs; None for whole entries
  * @param filter
  *   the slices of the filter's columns, if they are read first
  */
final case class RangeRead(
    range: ScanRange,
    slices: Option[EntrySlices],
    filter: Option[EntrySlices]
)
