package org.apache.spark.sql.ledgerlog

import io.ledgerlog.spark.scan.{LedgerPartition, LedgerReaderFactory}
import org.apache.spark.sql.catalyst.InternalRow
import org.apache.spark.sql.connector.read.{InputPartition, PartitionReader, PartitionReaderFactory}
import org.apache.spark.sql.vectorized.ColumnarBatch

/** Makes the readers of a stream's tasks, each of which belongs to this engine or to Python. */
final class HybridReaderFactory(python: PartitionReaderFactory) extends PartitionReaderFactory {
  private val columnar = new LedgerReaderFactory

  override def supportColumnarReads(partition: InputPartition): Boolean =
    partition.isInstanceOf[LedgerPartition]

  override def createReader(partition: InputPartition): PartitionReader[InternalRow] =
    python.createReader(partition)

  override def createColumnarReader(partition: InputPartition): PartitionReader[ColumnarBatch] =
    columnar.createColumnarReader(partition)
}
