package io.ledgerlog.spark.scan

import io.ledgerlog.spark.plan.ScanRange
import io.ledgerlog.spark.wire.EntrySlices

/** How a task reads a range.
  *
  * @param slices
  *   the columns that the scan needs, if not whole entries
  * @param filter
  *   the columns of the filter, if they are read first
  */
final case class RangeRead(
    range: ScanRange,
    slices: Option[EntrySlices],
    filter: Option[EntrySlices]
)
