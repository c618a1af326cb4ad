package io.ledgerlog.spark

import java.util

import org.apache.spark.sql.connector.catalog.{
  Identifier,
  NamespaceChange,
  StagedTable,
  StagingTableCatalog,
  SupportsNamespaces,
  Table,
  TableCatalogCapability,
  TableChange,
  TableInfo
}
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
    engine = EngineChoice.newEngine(LedgerCatalog.EngineClass)
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

  override def createTable(ident: Identifier, info: TableInfo): Table =
    engine.createTable(ident, info)

  override def alterTable(ident: Identifier, changes: TableChange*): Table =
    engine.alterTable(ident, changes: _*)

  override def dropTable(ident: Identifier): Boolean = engine.dropTable(ident)

  override def renameTable(from: Identifier, to: Identifier): Unit = engine.renameTable(from, to)

  override def stageCreate(ident: Identifier, info: TableInfo): StagedTable =
    engine.stageCreate(ident, info)

  override def stageReplace(ident: Identifier, info: TableInfo): StagedTable =
    engine.stageReplace(ident, info)

  override def stageCreateOrReplace(ident: Identifier, info: TableInfo): StagedTable =
    engine.stageCreateOrReplace(ident, info)

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
}
