package io.ledgerlog.spark.arrow

import org.apache.arrow.vector._
import org.apache.spark.sql.types.DataType
import org.apache.spark.sql.vectorized.{ArrowColumnVector, ColumnVector}
import org.apache.spark.unsafe.Platform

/** A column whose values are read from the memory of an Arrow vector.
  *
  * Spark's `ArrowColumnVector` reads the reference count of a buffer for each value and each null,
  * which takes a quarter of the time of a scan. `ColumnLoader` has compared the buffers with the
  * number of rows, so this class checks only that the row exists and that the column is open.
  */
abstract class MemoryColumn(vector: FieldVector, kind: DataType) extends ScalarColumn(kind) {
  private val nulls = vector.getNullCount
  private val validity = vector.getValidityBufferAddress

  /** The number of rows; 0 after `close`. */
  private var rows = vector.getValueCount

  final override def hasNull: Boolean = nulls > 0
  final override def numNulls: Int = nulls

  final override def isNullAt(row: Int): Boolean = {
    check(row)
    nulls > 0 && (Platform.getByte(null, validity + (row >> 3)) >> (row & 7) & 1) == 0
  }

  final override def close(): Unit = {
    rows = 0
    vector.close()
  }

  final protected def check(row: Int): Unit =
    if (row < 0 || row >= rows) throw new IndexOutOfBoundsException(s"row $row of $rows")
}

object MemoryColumn {

  /** The values of a vector as a column of this type. Closing the column closes the vector. */
  def of(vector: FieldVector, kind: DataType): ColumnVector = vector match {
    case _: TinyIntVector | _: SmallIntVector | _: IntVector | _: BigIntVector | _: Float4Vector |
        _: Float8Vector | _: DateDayVector | _: TimeStampMicroTZVector | _: TimeStampMicroVector =>
      new FixedWidthColumn(vector, kind)
    case _: VarCharVector | _: VarBinaryVector => new BytesColumn(vector, kind)
    case other => new ArrowColumnVector(other)
  }
}
