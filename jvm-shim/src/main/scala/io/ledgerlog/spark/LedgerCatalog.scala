package io.ledgerlog.spark

import java.util

import org.apache.spark.sql.connector.catalog.{
  Column,
  Identifier,
  NamespaceChange,
  StagedTable,
  StagingTableCatalog,
  SupportsNamespaces,
  Table,
  TableCatalogCapability,
  TableChange
}
import org.apache.spark.sql.connector.expressions.Transform
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The logs of a cluster as tables: `spark.sql.catalog.ledger=io.ledgerlog.spark.LedgerCatalog`.
  *
  * This class refers only to public classes of Spark. It loads the engine by its name, and only in
  * the minor version of Spark that the jar was built for.
  */
final class LedgerCatalog extends StagingTableCatalog with SupportsNamespaces {
  private var engine: StagingTableCatalog with SupportsNamespaces = _

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    EngineChoice.checkVersion(org.apache.spark.SPARK_VERSION, EngineChoice.builtFor)
    engine = LedgerCatalog.newEngine()
    engine.initialize(name, options)
  }

  override def name(): String = engine.name()

  override def capabilities(): util.Set[TableCatalogCapability] = engine.capabilities()

  override def listTables(namespace: Array[String]): Array[Identifier] =
    engine.listTables(namespace)

  override def loadTable(ident: Identifier): Table = engine.loadTable(ident)

  override def loadTable(ident: Identifier, version: String): Table =
    engine.loadTable(ident, version)

  override def loadTable(ident: Identifier, timestamp: Long): Table =
    engine.loadTable(ident, timestamp)

  override def createTable(
      ident: Identifier,
      columns: Array[Column],
      partitions: Array[Transform],
      properties: util.Map[String, String]
  ): Table = engine.createTable(ident, columns, partitions, properties)

  override def alterTable(ident: Identifier, changes: TableChange*): Table =
    engine.alterTable(ident, changes: _*)

  override def dropTable(ident: Identifier): Boolean = engine.dropTable(ident)

  override def renameTable(from: Identifier, to: Identifier): Unit = engine.renameTable(from, to)

  @deprecated("the method with columns is called", "Spark 3.4")
  override def stageCreate(
      ident: Identifier,
      schema: StructType,
      partitions: Array[Transform],
      properties: util.Map[String, String]
  ): StagedTable = engine.stageCreate(ident, schema, partitions, properties)

  override def stageCreate(
      ident: Identifier,
      columns: Array[Column],
      partitions: Array[Transform],
      properties: util.Map[String, String]
  ): StagedTable = engine.stageCreate(ident, columns, partitions, properties)

  @deprecated("the method with columns is called", "Spark 3.4")
  override def stageReplace(
      ident: Identifier,
      schema: StructType,
      partitions: Array[Transform],
      properties: util.Map[String, String]
  ): StagedTable = engine.stageReplace(ident, schema, partitions, properties)

  override def stageReplace(
      ident: Identifier,
      columns: Array[Column],
      partitions: Array[Transform],
      properties: util.Map[String, String]
  ): StagedTable = engine.stageReplace(ident, columns, partitions, properties)

  @deprecated("the method with columns is called", "Spark 3.4")
  override def stageCreateOrReplace(
      ident: Identifier,
      schema: StructType,
      partitions: Array[Transform],
      properties: util.Map[String, String]
  ): StagedTable = engine.stageCreateOrReplace(ident, schema, partitions, properties)

  override def stageCreateOrReplace(
      ident: Identifier,
      columns: Array[Column],
      partitions: Array[Transform],
      properties: util.Map[String, String]
  ): StagedTable = engine.stageCreateOrReplace(ident, columns, partitions, properties)

  override def listNamespaces(): Array[Array[String]] = engine.listNamespaces()

  override def listNamespaces(namespace: Array[String]): Array[Array[String]] =
    engine.listNamespaces(namespace)

  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] =
    engine.loadNamespaceMetadata(namespace)

  override def createNamespace(
      namespace: Array[String],
      metadata: util.Map[String, String]
  ): Unit = engine.createNamespace(namespace, metadata)

  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit =
    engine.alterNamespace(namespace, changes: _*)

  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean =
    engine.dropNamespace(namespace, cascade)
}

private object LedgerCatalog {
  private val EngineClass = "org.apache.spark.sql.ledgerlog.CatalogEngine"

  def newEngine(): StagingTableCatalog with SupportsNamespaces =
    Class
      .forName(EngineClass, true, classOf[LedgerCatalog].getClassLoader)
      .getDeclaredConstructor()
      .newInstance()
      .asInstanceOf[StagingTableCatalog with SupportsNamespaces]
}
