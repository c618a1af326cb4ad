package org.apache.spark.sql.ledgerlog

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.types.{DataType, StructType}

/** A log, or a metadata table of a log, as the Python package describes it.
  *
  * @param version
  *   the version that the table shows; none for a leader log and for a metadata table
  * @param schema
  *   the stored columns: a `char` or `varchar` is a string with metadata
  * @param detail
  *   the name of the metadata table; empty for a log
  */
final case class StoredTable(
    log: String,
    logId: String,
    version: Option[Long],
    schema: StructType,
    comment: String,
    properties: Map[String, String],
    detail: String
)

object StoredTable {
  def decode(node: JsonNode): StoredTable = StoredTable(
    node.get("log").textValue,
    node.get("log_id").textValue,
    Option(node.get("version")).filterNot(_.isNull).map(_.longValue),
    DataType.fromJson(node.get("schema").textValue).asInstanceOf[StructType],
    node.get("comment").textValue,
    CatalogRequests.textsOf(node.get("properties")),
    node.get("detail").textValue
  )
}
