package org.apache.spark.sql.ledgerlog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.catalyst.util.GenericArrayData
import org.apache.spark.sql.connector.read.LocalScan
import org.apache.spark.sql.types.{ArrayType, BooleanType, DataType, StringType, StructType}
import org.apache.spark.unsafe.types.UTF8String

/** The rows of a metadata table, which the driver reads when Spark plans a query. */
final class DetailScan(stored: StoredTable, requests: CatalogRequests) extends LocalScan {
  override def readSchema(): StructType = stored.schema

  override def rows(): Array[InternalRow] = {
    val answer = requests.ask("rows") { request =>
      request.put("name", stored.log)
      request.put("detail", stored.detail)
    }
    val kinds = stored.schema.fields.map(_.dataType).toSeq
    answer
      .get("rows")
      .elements
      .asScala
      .map(row => InternalRow.fromSeq(row.elements.asScala.toSeq.zip(kinds).map(valueOf)))
      .toArray
  }

  override def description(): String = s"ledger ${stored.log}, ${stored.detail}"

  private val valueOf: ((JsonNode, DataType)) => Any = {
    case (node, _) if node.isNull => null
    case (node, StringType) => UTF8String.fromString(node.textValue)
    case (node, BooleanType) => node.booleanValue
    case (node, ArrayType(kind, _)) =>
      new GenericArrayData(node.elements.asScala.map(each => valueOf((each, kind))).toArray[Any])
    case (node, _) => node.longValue
  }
}
