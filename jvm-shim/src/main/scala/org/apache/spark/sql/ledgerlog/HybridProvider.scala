package org.apache.spark.sql.ledgerlog

import java.util

import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The engine behind `LedgerSource`: batch scans here, everything else in the Python source. */
final class HybridProvider extends TableProvider {
  override def inferSchema(options: CaseInsensitiveStringMap): StructType =
    PythonSource.inferSchema(EngineOption.without(options))

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: util.Map[String, String]
  ): Table = new HybridTable(schema, properties)

  override def supportsExternalMetadata(): Boolean = true
}
