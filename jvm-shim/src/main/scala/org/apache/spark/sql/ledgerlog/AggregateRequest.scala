package org.apache.spark.sql.ledgerlog

import com.fasterxml.jackson.databind.node.{ArrayNode, JsonNodeFactory}
import org.apache.spark.sql.connector.expressions.aggregate.{
  AggregateFunc,
  Aggregation,
  Count,
  CountStar,
  Max,
  Min
}
import org.apache.spark.sql.connector.expressions.Expression
import org.apache.spark.sql.types.{LongType, StructField, StructType}

/** Values of a whole scan that the planner may find in the log's list.
  *
  * @param functions
  *   for each value its function, its column (none for `count(*)`), and its column in the answer
  */
final case class AggregateRequest(functions: Seq[(String, Option[StructField], StructField)]) {

  /** The columns that the values need. */
  def columns: StructType = StructType(functions.flatMap(_._2).distinct)

  def answer: StructType = StructType(functions.map(_._3))

  def json: ArrayNode = {
    val all = JsonNodeFactory.instance.arrayNode
    functions.foreach { case (function, column, _) =>
      val node = all.addObject().put("function", function)
      column.foreach(field => node.put("column", field.name))
    }
    all
  }
}

object AggregateRequest {

  /** The request for an aggregation; None if only a scan can compute it. */
  def of(aggregation: Aggregation, table: StructType): Option[AggregateRequest] = {
    val wanted = aggregation.aggregateExpressions().toSeq
    val found = wanted.zipWithIndex.flatMap { case (each, place) => function(each, place, table) }
    if (wanted.isEmpty || found.size < wanted.size || aggregation.groupByExpressions().nonEmpty)
      None
    else Some(AggregateRequest(found))
  }

  private def function(
      each: AggregateFunc,
      place: Int,
      table: StructType
  ): Option[(String, Option[StructField], StructField)] = each match {
    case _: CountStar => Some(("count", None, StructField(s"count$place", LongType)))
    case count: Count if !count.isDistinct =>
      field(count.column, table).map { of =>
        ("count", Some(of), StructField(s"count$place(${of.name})", LongType))
      }
    case min: Min => bound("min", min.column, place, table)
    case max: Max => bound("max", max.column, place, table)
    case _ => None
  }

  private def bound(
      name: String,
      column: Expression,
      place: Int,
      table: StructType
  ): Option[(String, Option[StructField], StructField)] =
    field(column, table)
      .filter(of => PredicateJson.familyOf(of.dataType).isDefined)
      .map(of => (name, Some(of), StructField(s"$name$place(${of.name})", of.dataType)))

  private def field(column: Expression, table: StructType): Option[StructField] =
    PredicateJson.columnOf(column, table).flatMap(name => table.fields.find(_.name == name))
}
