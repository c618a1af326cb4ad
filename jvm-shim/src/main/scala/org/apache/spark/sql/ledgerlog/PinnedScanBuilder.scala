package org.apache.spark.sql.ledgerlog

import org.apache.spark.sql.connector.read.{Scan, ScanBuilder}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Scans of a table of the catalog in the Python source. */
final class PinnedScanBuilder(
    columns: StructType,
    options: CaseInsensitiveStringMap,
    streamOptions: CaseInsensitiveStringMap
) extends ScanBuilder {
  override def build(): Scan = new PinnedScan(columns, options, streamOptions)
}
