package io.ledgerlog.spark.scan

import io.ledgerlog.spark.read.ReadSettings
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Makes the readers of tasks on the executors. */
final class LedgerReaderFactory extends PartitionReaderFactory {
  override def supportColumnarReads(partition: InputPartition): Boolean = true

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    throw new UnsupportedOperationException("scans of ledgerlog return columns")

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] =
    LedgerPartitionReader.of(partition.asInstanceOf[LedgerPartition], ReadSettings())
}
