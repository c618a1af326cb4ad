package io.ledgerlog.spark.arrow

import org.apache.arrow.vector.FieldVector
import org.apache.spark.sql.types.DataType
import org.apache.spark.unsafe.Platform
import org.apache.spark.unsafe.types.UTF8String

/** Strings and binary values. */
final class BytesColumn(vector: FieldVector, kind: DataType) extends MemoryColumn(vector, kind) {
  private val offsets = vector.getOffsetBufferAddress
  private val values = vector.getDataBufferAddress

  /** A string in the memory of the column, which is valid until the column is closed. */
  override def getUTF8String(row: Int): UTF8String =
    if (isNullAt(row)) null
    else {
      val begin = offset(row)
      UTF8String.fromAddress(null, values + begin, offset(row + 1) - begin)
    }

  override def getBinary(row: Int): Array[Byte] =
    if (isNullAt(row)) null
    else {
      val begin = offset(row)
      val copy = new Array[Byte](offset(row + 1) - begin)
      Platform.copyMemory(
        null,
        values + begin,
        copy,
        Platform.BYTE_ARRAY_OFFSET.toLong,
        copy.length.toLong
      )
      copy
    }

  private def offset(place: Int): Int = Platform.getInt(null, offsets + 4L * place)
}
