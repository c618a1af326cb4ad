package org.apache.spark.sql.ledgerlog

import java.math.{BigDecimal => JavaDecimal}
import java.util.Base64

import com.fasterxml.jackson.databind.JsonNode
import io.ledgerlog.spark.LedgerLogException
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.LocalScan
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** The answer to an aggregation without groups, from the log's list. No entry is read.
  *
  * @param values
  *   one value for each column, in the form of `skipping/aggregates.py`
  */
final class AggregateScan(columns: StructType, values: Seq[JsonNode], subject: String)
    extends LocalScan {

  override def readSchema(): StructType = columns

  override def rows(): Array[InternalRow] =
    Array(
      InternalRow.fromSeq(
        values.zip(columns.fields).map { case (value, field) =>
          AggregateScan.decode(value, field.dataType)
        }
      )
    )

  override def description(): String =
    s"ledger $subject, JVM engine, ${columns.fieldNames.mkString(", ")} from the log's list"
}

object AggregateScan {

  /** A value in the form that Spark has in its rows. */
  def decode(value: JsonNode, kind: DataType): Any =
    if (value == null || value.isNull) null
    else
      kind match {
        case BooleanType => value.asBoolean
        case ByteType => value.asInt.toByte
        case ShortType => value.asInt.toShort
        case IntegerType | DateType => value.asInt
        case LongType | TimestampType | TimestampNTZType => value.asLong
        case _: TimeType | _: DayTimeIntervalType => value.asLong
        case FloatType => value.asText.toDouble.toFloat
        case DoubleType => value.asText.toDouble
        case exact: DecimalType =>
          val number = new JavaDecimal(value.bigIntegerValue, exact.scale)
          Decimal(number, exact.precision, exact.scale)
        case _: StringType => UTF8String.fromBytes(Base64.getDecoder.decode(value.asText))
        case BinaryType => Base64.getDecoder.decode(value.asText)
        case other => throw LedgerLogException.wireFormat(s"a value of the type $other")
      }
}
