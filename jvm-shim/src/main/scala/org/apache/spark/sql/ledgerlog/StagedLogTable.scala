package org.apache.spark.sql.ledgerlog

import java.util

import org.apache.spark.sql.connector.catalog.{Column, StagedTable, SupportsWrite, TableCapability}
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}

/** A log that a statement creates or replaces together with its rows.
  *
  * Staging changes nothing. The one commit of the write creates the log, or replaces its rows and
  * columns. So after a statement that fails, there is no log, or the unchanged old log.
  *
  * @param writeOptions
  *   the options of the commit, which also protect it from other writers
  * @param withoutRows
  *   creates or replaces the log in a statement that has no query
  */
final class StagedLogTable(
    title: String,
    log: String,
    tableColumns: Array[Column],
    requests: CatalogRequests,
    writeOptions: Map[String, String],
    isOverwrite: Boolean,
    withoutRows: () => Unit
) extends StagedTable
    with SupportsWrite {
  private var hasRows = false

  override def name(): String = title

  override def columns(): Array[Column] = tableColumns

  override def capabilities(): util.Set[TableCapability] =
    util.EnumSet.of(TableCapability.BATCH_WRITE, TableCapability.TRUNCATE)

  /** Spark requests an overwrite even of a log that the statement creates: here it is an append. */
  override def newWriteBuilder(info: LogicalWriteInfo): WriteBuilder = {
    hasRows = true
    val asked =
      TableOptions.replaced(requests.options, TableOptions.ofWrite(title, info.options()))
    val options = TableOptions.replaced(asked, writeOptions)
    new CatalogWriteBuilder(log, info, _ => options, Some(isOverwrite))
  }

  override def commitStagedChanges(): Unit = if (!hasRows) withoutRows()

  override def abortStagedChanges(): Unit = ()
}
