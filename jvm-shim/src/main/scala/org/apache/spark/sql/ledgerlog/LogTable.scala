package org.apache.spark.sql.ledgerlog

import java.util

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.EngineChoice
import org.apache.spark.sql.connector.catalog.{
  Column,
  MetadataColumn,
  SupportsMetadataColumns,
  SupportsRead,
  SupportsWrite,
  Table,
  TableCapability,
  TableCatalog,
  TruncatableTable
}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A log as a table of the catalog, in the version in which Spark loaded it.
  *
  * A batch reads this version, so a statement sees one version of the log. The rows of an overwrite
  * may be computed from this version, so an overwrite replaces this version and never a later one.
  *
  * @param isNewest
  *   whether no older version was requested; only the newest version can be written
  */
final class LogTable(
    title: String,
    stored: StoredTable,
    requests: CatalogRequests,
    isNewest: Boolean
) extends Table
    with SupportsRead
    with SupportsWrite
    with SupportsMetadataColumns
    with TruncatableTable {

  /** The values that are equal in two loads of one table, for example for Spark's cache. */
  private val identity = (title, stored.logId, stored.version, isNewest)

  override def name(): String = title

  override def id(): String = stored.logId

  /** Spark reads all references to a table in one statement in the same version. */
  override def version(): String = stored.version.map(_.toString).orNull

  override def columns(): Array[Column] = TableColumns.shown(stored.schema)

  override def properties(): util.Map[String, String] = {
    val comment = Option(stored.comment).filter(_.nonEmpty).map(TableCatalog.PROP_COMMENT -> _)
    (stored.properties + (TableCatalog.PROP_PROVIDER -> EngineChoice.Name) ++ comment).asJava
  }

  override def capabilities(): util.Set[TableCapability] =
    if (isNewest && stored.version.isDefined) LogTable.Written else LogTable.ReadOnly

  override def metadataColumns(): Array[MetadataColumn] = HiddenColumn.all

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    val read = TableOptions.ofRead(title, options) + ("log" -> stored.log)
    val common = TableOptions.replaced(requests.options, read)
    val batch = TableOptions.asMap(common ++ stored.version.map("versionAsOf" -> _.toString))
    val stream = TableOptions.asMap(common)
    if (EngineChoice.isWanted && !EngineOption.isPython(options))
      new HybridScanBuilder(stored.schema, batch, stream, new PinnedRows)
    else new PinnedScanBuilder(stored.schema, batch, stream)
  }

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    val asked =
      TableOptions.replaced(requests.options, TableOptions.ofWrite(title, info.options()))
    new CatalogWriteBuilder(stored.log, info, mode => asked ++ optionsOf(mode, asked))
  }

  override def truncateTable(): Boolean = {
    requests.ask("truncate") { request =>
      request.put("name", stored.log)
      request.put("log_id", stored.logId)
    }
    true
  }

  override def equals(other: Any): Boolean = other match {
    case table: LogTable => table.identityOf == identity
    case _ => false
  }

  override def hashCode(): Int = identity.hashCode

  private def identityOf: Any = identity

  /** A stream gets no expected log id or version: it outlives them, and the source refuses them. */
  private def optionsOf(mode: WriteMode, asked: Map[String, String]): Map[String, String] = {
    val target = Map("path" -> stored.log, "createIfMissing" -> "false")
    val replacesAny = TableOptions.isOn(asked, "overwriteIfChanged")
    if (mode.isStream) target
    else if (mode.isOverwrite && !replacesAny)
      target ++ Map("expectedLogId" -> stored.logId) ++
        stored.version.map("expectedVersion" -> _.toString)
    else target ++ Map("expectedLogId" -> stored.logId)
  }
}

private object LogTable {
  val ReadOnly: util.Set[TableCapability] =
    util.EnumSet.of(TableCapability.BATCH_READ, TableCapability.MICRO_BATCH_READ)

  val Written: util.Set[TableCapability] = util.EnumSet.of(
    TableCapability.BATCH_READ,
    TableCapability.MICRO_BATCH_READ,
    TableCapability.BATCH_WRITE,
    TableCapability.STREAMING_WRITE,
    TableCapability.TRUNCATE,
    TableCapability.AUTOMATIC_SCHEMA_EVOLUTION
  )
}
