package org.apache.spark.sql.ledgerlog

import java.util

import org.apache.spark.sql.connector.catalog.{Column, SupportsRead, Table, TableCapability}
import org.apache.spark.sql.connector.read.ScanBuilder
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** A metadata table of a log: its history, ranges or ledgers. */
final class DetailTable(title: String, stored: StoredTable, requests: CatalogRequests)
    extends Table
    with SupportsRead {
  override def name(): String = title

  override def columns(): Array[Column] = TableColumns.shown(stored.schema)

  override def capabilities(): util.Set[TableCapability] =
    util.EnumSet.of(TableCapability.BATCH_READ)

  override def newScanBuilder(options: CaseInsensitiveStringMap): ScanBuilder = {
    TableOptions.ofRead(title, options)
    () => new DetailScan(stored, requests)
  }
}
