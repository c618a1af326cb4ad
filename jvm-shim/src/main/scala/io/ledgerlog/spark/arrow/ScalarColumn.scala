package io.ledgerlog.spark.arrow

import org.apache.spark.sql.types.{DataType, Decimal}
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarArray, ColumnarMap}
import org.apache.spark.unsafe.types.UTF8String

/** A column of single values. A subclass overrides the methods of its type. */
abstract class ScalarColumn(kind: DataType) extends ColumnVector(kind) {
  override def getBoolean(row: Int): Boolean = unsupported()
  override def getByte(row: Int): Byte = unsupported()
  override def getShort(row: Int): Short = unsupported()
  override def getInt(row: Int): Int = unsupported()
  override def getLong(row: Int): Long = unsupported()
  override def getFloat(row: Int): Float = unsupported()
  override def getDouble(row: Int): Double = unsupported()
  override def getArray(row: Int): ColumnarArray = unsupported()
  override def getMap(row: Int): ColumnarMap = unsupported()
  override def getDecimal(row: Int, precision: Int, scale: Int): Decimal = unsupported()
  override def getUTF8String(row: Int): UTF8String = unsupported()
  override def getBinary(row: Int): Array[Byte] = unsupported()
  override def getChild(place: Int): ColumnVector = unsupported()

  private def unsupported(): Nothing = throw new UnsupportedOperationException
}
