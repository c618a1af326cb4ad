package io.ledgerlog.spark.scan

import io.ledgerlog.spark.plan.JvmPlan
import org.apache.spark.sql.connector.read.{Batch, InputPartition, PartitionReaderFactory}
import org.apache.spark.sql.types.StructType

/** The tasks of a planned scan. */
final class LedgerBatch(plan: JvmPlan.Planned, target: StructType, limit: Option[Long])
    extends Batch {

  override def planInputPartitions(): Array[InputPartition] =
    plan.partitions.map { ranges =>
      val read = ranges.map(_.ledgerId).toSet
      val ledgers = plan.ledgers.filter { case (ledgerId, _) => read(ledgerId) }
      val members = ledgers.values.flatMap(_.fragments).flatMap(_.ensemble).toSet
      val schemas = ranges.map(range => (range.log, range.schemaId)).toSet
      new LedgerPartition(
        ranges = ranges,
        ledgers = ledgers,
        bookies = plan.bookies.filter { case (bookieId, _) => members(bookieId) },
        schemas = plan.schemas.filter(each => schemas((each.log, each.schemaId))),
        service = plan.service.copy(paths = plan.service.paths.filter(each => read(each._1))),
        password = plan.password,
        failOnDataLoss = plan.failOnDataLoss,
        target = target,
        limit = limit
      ): InputPartition
    }.toArray

  override def createReaderFactory(): PartitionReaderFactory = new LedgerReaderFactory
}
