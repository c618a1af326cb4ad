package org.apache.spark.sql.ledgerlog

import java.util.Base64

import com.fasterxml.jackson.databind.node.{ArrayNode, JsonNodeFactory, ObjectNode}
import org.apache.spark.sql.connector.expressions.{
  Expression,
  GeneralScalarExpression,
  Literal,
  NamedReference
}
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.types._
import org.apache.spark.unsafe.types.UTF8String

/** The JSON of filters, which `ledgerlog_spark/datasource/skipping/predicates.py` reads.
  *
  * An expression without a JSON form becomes an empty object, for which the planner keeps all rows.
  *
  * @param table
  *   the columns and their types: a column with a collation is not in the order of its bytes
  */
final class PredicateJson(table: StructType) {
  private val nodes = JsonNodeFactory.instance

  /** Filters that all have to be true. Very large ones are left out, which keeps more rows. */
  def encode(predicates: Seq[Predicate]): ArrayNode = {
    val all = nodes.arrayNode
    var room = PredicateJson.PartsMax
    predicates.foreach { predicate =>
      val parts = PredicateJson.partsOf(predicate, PredicateJson.DepthMax)
      if (parts.exists(_ <= room)) {
        room -= parts.get
        all.add(expression(predicate))
      }
    }
    all
  }

  private def expression(part: Expression): ObjectNode = part match {
    // The filters that are always true or false are operators and literals.
    case operator: GeneralScalarExpression =>
      val node = nodes.objectNode.put("op", operator.name())
      val operands = node.putArray("of")
      operator.children().foreach(child => operands.add(expression(child)))
      node
    case literal: Literal[_] => constant(literal.value, literal.dataType)
    case reference: NamedReference => column(reference)
    case _ => nodes.objectNode
  }

  private def column(reference: NamedReference): ObjectNode =
    PredicateJson
      .columnOf(reference, table)
      .fold(nodes.objectNode)(nodes.objectNode.put("column", _))

  private def constant(value: Any, kind: DataType): ObjectNode = {
    val node = nodes.objectNode
    PredicateJson.familyOf(kind).foreach { family =>
      node.put("type", family)
      value match {
        case null => node.putNull("value")
        case flag: Boolean => node.put("value", flag)
        case number: Byte => node.put("value", number.toLong)
        case number: Short => node.put("value", number.toLong)
        case number: Int => node.put("value", number.toLong)
        case number: Long => node.put("value", number)
        case number: Float => node.put("value", number.toDouble.toString)
        case number: Double => node.put("value", number.toString)
        case number: Decimal =>
          val exact = number.toJavaBigDecimal
          node.put("value", exact.unscaledValue()).put("scale", exact.scale())
        case text: UTF8String => node.put("value", base64(text.getBytes))
        case bytes: Array[Byte] => node.put("value", base64(bytes))
        case _ => node.remove("type")
      }
    }
    node
  }

  private def base64(bytes: Array[Byte]): String = Base64.getEncoder.encodeToString(bytes)
}

object PredicateJson {

  /** Limits of a request: parts of all filters, and operators within operators. */
  val PartsMax = 20000
  val DepthMax = 100

  /** The name of a column whose bounds have the order of its values. */
  def columnOf(expression: Expression, table: StructType): Option[String] = expression match {
    case reference: NamedReference if reference.fieldNames.length == 1 =>
      val name = reference.fieldNames.head
      val kind = table.fields
        .find(_.name == name)
        .map(_.dataType)
        .orElse(HiddenColumn.all.find(_.name() == name).map(_.dataType()))
      // Columns of types without bounds are allowed, because their null counts are exact.
      kind.filter(each => !each.isInstanceOf[StringType] || each == StringType).map(_ => name)
    case _ => None
  }

  /** The name of the types whose values are compared in the same way; None without bounds. */
  def familyOf(kind: DataType): Option[String] = kind match {
    case BooleanType => Some("boolean")
    case ByteType | ShortType | IntegerType | LongType => Some("integer")
    case FloatType | DoubleType => Some("float")
    case _: DecimalType => Some("decimal")
    case StringType => Some("string")
    case BinaryType => Some("binary")
    case DateType => Some("date")
    case TimestampType => Some("timestamp")
    case TimestampNTZType => Some("timestamp_ntz")
    case _: TimeType => Some("time")
    case _: DayTimeIntervalType => Some("interval")
    case _ => None
  }

  /** The number of parts of an expression; empty if it is too deep or too large. */
  private def partsOf(part: Expression, depth: Int): Option[Int] =
    if (depth == 0) None
    else
      part match {
        case operator: GeneralScalarExpression =>
          val children = operator.children()
          if (children.length > PartsMax) None
          else
            children.foldLeft(Option(1)) { (sum, child) =>
              for (a <- sum; b <- partsOf(child, depth - 1)) yield a + b
            }
        case _ => Some(1)
      }
}
