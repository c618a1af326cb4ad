package org.apache.spark.sql.ledgerlog

import io.ledgerlog.spark.plan.PlanJson
import munit.FunSuite
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

class AggregateScanSuite extends FunSuite {
  private def decoded(text: String, kind: DataType): Any =
    AggregateScan.decode(PlanJson.parse(text), kind)

  test("values have the form of Spark's rows") {
    assertEquals(decoded("null", LongType), null: Any)
    assertEquals(decoded("9223372036854775807", LongType), Long.MaxValue: Any)
    assertEquals(decoded("-3", ByteType), (-3).toByte: Any)
    assertEquals(decoded("20000", DateType), 20000: Any)
    assertEquals(decoded("\"0.5\"", FloatType), 0.5f: Any)
    assertEquals(decoded("\"Infinity\"", DoubleType), Double.PositiveInfinity: Any)
    assertEquals(decoded("true", BooleanType), true: Any)
    assertEquals(decoded("\"w6k=\"", StringType), UTF8String.fromString("é"): Any)
    val largest = BigInt(10).pow(38) - 1
    val exact = decoded(largest.toString, DecimalType(38, 2)).asInstanceOf[Decimal]
    assertEquals(exact.toJavaBigDecimal.unscaledValue(), largest.bigInteger)
    assertEquals(exact.scale, 2)
  }
}
