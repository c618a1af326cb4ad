package org.apache.spark.sql.ledgerlog

import java.util
import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.catalog.{
  MetadataColumn,
  SupportsMetadataColumns,
  SupportsRead,
  SupportsWrite,
  Table,
  TableCapability
}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, LogicalWriteInfoImpl, WriteBuilder}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A log, several logs or a ledger, as the options select them. */
final class HybridTable(tableSchema: StructType, tableProperties: util.Map[String, String])
    extends Table
    with SupportsRead
    with SupportsWrite
    with SupportsMetadataColumns {
  private val ofTable = new SessionTableOptions(tableProperties)
  private val pinned = new PinnedRows

  /** Python sources, which keep the plan of their first query, by their options. */
  private val sources = new ConcurrentHashMap[Map[String, String], PythonSource.Kept]

  override def name(): String = "ledger"

  @deprecated("columns() has the columns", "Spark 3.4")
  override def schema(): StructType = tableSchema

  override def properties(): util.Map[String, String] = tableProperties

  /** The capabilities of the Python source, so that Spark treats statements alike. */
  override def capabilities(): util.Set[TableCapability] = util.EnumSet.of(
    TableCapability.BATCH_READ,
    TableCapability.BATCH_WRITE,
    TableCapability.MICRO_BATCH_READ,
    TableCapability.STREAMING_WRITE,
    TableCapability.TRUNCATE
  )

  override def metadataColumns(): Array[MetadataColumn] = HiddenColumn.all

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    val asked = ofTable.ofRead(options)
    if (EngineOption.isPython(asked))
      sources
        .computeIfAbsent(asked.asScala.toMap, _ => new PythonSource.Kept)
        .scanBuilder(tableSchema, asked)
    else {
      val read = EngineOption.without(asked)
      new HybridScanBuilder(tableSchema, read, read, pinned)
    }
  }

  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    val asked = EngineOption.without(ofTable.ofWrite(info.options()))
    PythonSource.writeBuilder(LogicalWriteInfoImpl(info.queryId(), info.schema(), asked))
  }
}
