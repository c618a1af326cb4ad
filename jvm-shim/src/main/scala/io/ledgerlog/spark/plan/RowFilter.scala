package io.ledgerlog.spark.plan

import java.math.{BigDecimal, BigInteger}
import java.util.Base64

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.unsafe.types.UTF8String

/** A filter of a query, for stored rows. Spark applies the filter again, so a row is kept if its
  * result is not known. `ledgerlog_spark/datasource/skipping/row_filters.py` writes the JSON.
  */
sealed trait RowFilter extends Serializable {

  /** The places of the columns in the stored rows. */
  def places: Set[Int]
}

object RowFilter {

  /** A value that is compared only with values of its family: a number, a decimal or bytes. */
  type Key = AnyRef with Comparable[AnyRef]

  /** A part whose result is not known. */
  case object Unknown extends RowFilter {
    override val places: Set[Int] = Set.empty
  }

  final case class And(parts: Seq[RowFilter]) extends RowFilter {
    override def places: Set[Int] = parts.flatMap(_.places).toSet
  }

  final case class Or(parts: Seq[RowFilter]) extends RowFilter {
    override def places: Set[Int] = parts.flatMap(_.places).toSet
  }

  final case class Not(part: RowFilter) extends RowFilter {
    override def places: Set[Int] = part.places
  }

  /** Whether a value is null, or with `isNegated`, whether it is not. */
  final case class IsNull(place: Int, isNegated: Boolean) extends RowFilter {
    override def places: Set[Int] = Set(place)
  }

  /** A comparison with constants. Only `IN` may have several constants.
    *
    * @param family
    *   the family of the column's type and of the constants
    * @param values
    *   the constants; None for a null
    */
  final case class Comparison(
      place: Int,
      operator: String,
      family: String,
      values: Seq[Option[Key]]
  ) extends RowFilter {
    override def places: Set[Int] = Set(place)
  }

  def decode(node: JsonNode): RowFilter =
    node.path("op").asText match {
      case "AND" => And(parts(node))
      case "OR" => Or(parts(node))
      case "NOT" => Not(parts(node).head)
      case "IS_NULL" => IsNull(node.get("place").asInt, isNegated = false)
      case "IS_NOT_NULL" => IsNull(node.get("place").asInt, isNegated = true)
      case operator if node.has("family") =>
        val family = node.get("family").asText
        val values = elements(node.get("values")).map { value =>
          if (value.isNull) None else Some(keyOf(family, value))
        }
        Comparison(node.get("place").asInt, operator, family, values)
      case _ => Unknown
    }

  /** The key of a number. Floats have Spark's order: -0.0 equals 0.0, and NaN is the largest. */
  def keyOf(value: Double): Key = {
    val bits = java.lang.Double.doubleToLongBits(value + 0.0)
    keyOf(if (bits < 0) bits ^ Long.MaxValue else bits)
  }

  def keyOf(value: Long): Key = key(java.lang.Long.valueOf(value))
  def keyOf(value: BigDecimal): Key = key(value)
  def keyOf(value: UTF8String): Key = key(value)

  private def keyOf(family: String, value: JsonNode): Key = family match {
    case "float" => keyOf(java.lang.Double.parseDouble(value.asText))
    case "decimal" => keyOf(new BigDecimal(new BigInteger(value.asText), DecimalScale))
    case "string" | "binary" => keyOf(UTF8String.fromBytes(Base64.getDecoder.decode(value.asText)))
    case _ => keyOf(value.asLong)
  }

  /** The scale of all decimals here, as `DECIMAL_SCALE_MAX` in `datasource/skipping/facts.py`. */
  private val DecimalScale = 38

  private def key(value: AnyRef): Key = value.asInstanceOf[Key]

  private def parts(node: JsonNode): Seq[RowFilter] = elements(node.get("of")).map(decode)

  private def elements(node: JsonNode): Seq[JsonNode] = node.elements.asScala.toVector
}
