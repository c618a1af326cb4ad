package io.ledgerlog.spark.arrow

import org.apache.spark.sql.types.LongType

/** The column `_offset`: the offsets of consecutive rows. */
final class OffsetColumn(first: Long) extends LongColumn(LongType) {
  override def getLong(row: Int): Long = first + row
}
