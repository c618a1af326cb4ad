package org.apache.spark.sql.ledgerlog

import org.apache.spark.sql.connector.catalog.MetadataColumn
import org.apache.spark.sql.types.{DataType, LongType, StringType, TimestampType}

/** A metadata column that a query can select, but `*` does not show. */
final class HiddenColumn(columnName: String, kind: DataType, meaning: String)
    extends MetadataColumn {
  override def name(): String = columnName
  override def dataType(): DataType = kind
  override def isNullable: Boolean = true
  override def comment(): String = meaning
}

object HiddenColumn {
  val all: Array[MetadataColumn] = Array(
    new HiddenColumn("_log", StringType, "name of the log"),
    new HiddenColumn("_ledger", LongType, "id of the ledger"),
    new HiddenColumn("_entry", LongType, "id of the entry in the ledger"),
    new HiddenColumn("_offset", LongType, "offset of the row in the log"),
    new HiddenColumn("_append_time", TimestampType, "time when the row was committed or appended")
  )

  val names: Set[String] = all.map(_.name()).toSet
}
