package org.apache.spark.sql.ledgerlog

import com.fasterxml.jackson.databind.node.{JsonNodeFactory, ObjectNode}
import org.apache.spark.sql.connector.expressions.{NullOrdering, SortDirection, SortOrder}
import org.apache.spark.sql.types.StructType

/** The first sort order and the limit of a query, for the planner. */
final case class TopRequest(column: String, descending: Boolean, nullsFirst: Boolean, limit: Int) {

  def json: ObjectNode =
    JsonNodeFactory.instance.objectNode
      .put("column", column)
      .put("descending", descending)
      .put("nulls_first", nullsFirst)
      .put("limit", limit)

  override def toString: String =
    s"ORDER BY $column ${if (descending) "DESC" else "ASC"} LIMIT $limit"
}

object TopRequest {

  /** The request for sort orders; None if the first one is not by a column with usable bounds. */
  def of(orders: Seq[SortOrder], limit: Int, table: StructType): Option[TopRequest] =
    for {
      first <- orders.headOption
      name <- PredicateJson.columnOf(first.expression(), table)
      field <- table.fields.find(_.name == name)
      if PredicateJson.familyOf(field.dataType).isDefined
    } yield TopRequest(
      name,
      first.direction() == SortDirection.DESCENDING,
      first.nullOrdering() == NullOrdering.NULLS_FIRST,
      limit
    )
}
