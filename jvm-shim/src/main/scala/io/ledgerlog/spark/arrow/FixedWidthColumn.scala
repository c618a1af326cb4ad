package io.ledgerlog.spark.arrow

import org.apache.arrow.vector.FieldVector
import org.apache.spark.sql.types.DataType
import org.apache.spark.unsafe.Platform

/** Numbers, dates and timestamps. */
final class FixedWidthColumn(vector: FieldVector, kind: DataType)
    extends MemoryColumn(vector, kind) {
  private val values = vector.getDataBufferAddress

  override def getByte(row: Int): Byte = {
    check(row)
    Platform.getByte(null, values + row)
  }

  override def getShort(row: Int): Short = {
    check(row)
    Platform.getShort(null, values + 2L * row)
  }

  override def getInt(row: Int): Int = {
    check(row)
    Platform.getInt(null, values + 4L * row)
  }

  override def getLong(row: Int): Long = {
    check(row)
    Platform.getLong(null, values + 8L * row)
  }

  override def getFloat(row: Int): Float = {
    check(row)
    Platform.getFloat(null, values + 4L * row)
  }

  override def getDouble(row: Int): Double = {
    check(row)
    Platform.getDouble(null, values + 8L * row)
  }
}
