package io.ledgerlog.spark.arrow

import org.apache.spark.sql.types.DataType

/** A column of 64-bit numbers that are computed, without memory of its own. */
abstract class LongColumn(kind: DataType) extends ScalarColumn(kind) {
  override def close(): Unit = ()
  override def hasNull: Boolean = false
  override def numNulls: Int = if (hasNull) 1 else 0
  override def isNullAt(row: Int): Boolean = false
}
