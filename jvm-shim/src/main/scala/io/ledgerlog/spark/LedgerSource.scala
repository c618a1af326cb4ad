package io.ledgerlog.spark

import java.util

import org.apache.spark.sql.connector.catalog.{Table, TableProvider}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.sources.DataSourceRegister
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The class that Spark finds for `format("ledger")`.
  *
  * Spark loads every registered class when it looks up any format. So this class refers only to
  * public classes of Spark, and loads the engine by its name when it is needed.
  */
final class LedgerSource extends TableProvider with DataSourceRegister {

  private lazy val engine: TableProvider = EngineChoice.newEngine(LedgerSource.EngineClass)

  /** `ledger` if this engine serves the session, otherwise a name that no user writes. */
  override def shortName(): String = EngineChoice.shortName()

  override def inferSchema(options: CaseInsensitiveStringMap): StructType =
    engine.inferSchema(options)

  override def getTable(
      schema: StructType,
      partitioning: Array[Transform],
      properties: util.Map[String, String]
  ): Table = engine.getTable(schema, partitioning, properties)

  /** A schema that the user gives selects columns, as in the Python source. */
  override def supportsExternalMetadata(): Boolean = true
}

private object LedgerSource {
  val EngineClass = "org.apache.spark.sql.ledgerlog.HybridProvider"
}
