package org.apache.spark.sql.ledgerlog

import munit.FunSuite
import org.apache.spark.sql.connector.expressions.{Expression, Expressions, LiteralValue}
import org.apache.spark.sql.connector.expressions.filter.{And, Predicate}
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

class PredicateJsonSuite extends FunSuite {
  private val table = new StructType()
    .add("a", IntegerType)
    .add("t", StringType)
    .add("c", StringType("UTF8_LCASE"))
    .add("s", new StructType().add("x", IntegerType))

  private def predicate(operator: String, operands: Expression*): Predicate =
    new Predicate(operator, operands.toArray)

  private def column(names: String*): Expression = Expressions.column(names.mkString("."))

  private def json(predicates: Predicate*): String =
    new PredicateJson(table).encode(predicates).toString

  private def literal(value: Any, kind: DataType): Expression = LiteralValue(value, kind)

  test("operators, columns and literals") {
    val is = new And(
      predicate("<", column("a"), literal(5, IntegerType)),
      predicate("=", column("t"), literal(UTF8String.fromString("x"), StringType))
    )
    assertEquals(
      json(is, predicate("IS_NULL", column("_offset"))),
      """[{"op":"AND","of":[{"op":"<","of":[{"column":"a"},{"type":"integer","value":5}]},""" +
        """{"op":"=","of":[{"column":"t"},{"type":"string","value":"eA=="}]}]},""" +
        """{"op":"IS_NULL","of":[{"column":"_offset"}]}]"""
    )
  }

  test("columns with a collation, fields of structs and unknown types have no form") {
    val text = literal(UTF8String.fromString("x"), StringType)
    assertEquals(
      json(predicate("=", column("c"), text), predicate("=", column("s", "x"), text)),
      """[{"op":"=","of":[{},{"type":"string","value":"eA=="}]},""" +
        """{"op":"=","of":[{},{"type":"string","value":"eA=="}]}]"""
    )
    val other = literal(UTF8String.fromString("x"), StringType("UTF8_LCASE"))
    assertEquals(
      json(predicate("=", column("t"), other)),
      """[{"op":"=","of":[{"column":"t"},{}]}]"""
    )
  }

  test("literals are exact") {
    val values = Seq(
      literal(Decimal(new java.math.BigDecimal("12345678901234567890.12")), DecimalType(38, 2)),
      literal(Double.NaN, DoubleType),
      literal(Float.NegativeInfinity, FloatType),
      literal(0.1f, FloatType),
      literal(null, LongType),
      literal(true, BooleanType)
    )
    assertEquals(
      json(predicate("IN", values: _*)),
      """[{"op":"IN","of":[{"type":"decimal","value":1234567890123456789012,"scale":2},""" +
        """{"type":"float","value":"NaN"},{"type":"float","value":"-Infinity"},""" +
        """{"type":"float","value":"0.10000000149011612"},{"type":"integer","value":null},""" +
        """{"type":"boolean","value":true}]}]"""
    )
  }

  test("very large and very deep filters are left out") {
    val many = predicate("IN", Seq.fill(PredicateJson.PartsMax)(literal(1, IntegerType)): _*)
    val small = predicate("IS_NULL", column("a"))
    val deep = (0 to PredicateJson.DepthMax).foldLeft(small) { (inner, _) =>
      predicate("NOT", inner)
    }
    assertEquals(json(many, deep, small), json(small))
  }
}
