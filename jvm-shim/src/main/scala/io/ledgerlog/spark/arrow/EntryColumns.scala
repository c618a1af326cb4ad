package io.ledgerlog.spark.arrow

import java.io.ByteArrayInputStream
import java.nio.channels.Channels

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.{ColumnOrigin, RowFilter, ScanRange, StoredSchema}
import org.apache.arrow.memory.BufferAllocator
import org.apache.arrow.vector.FieldVector
import org.apache.arrow.vector.ipc.ReadChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.Schema
import org.apache.spark.sql.execution.vectorized.ConstantColumnVector
import org.apache.spark.sql.types.{LongType, StringType, StructType}
import org.apache.spark.sql.vectorized.{ColumnVector, ColumnarBatch}
import org.apache.spark.unsafe.types.UTF8String

/** Converts entries of one stored schema to columns of the scan's schema. */
final class EntryColumns(stored: StoredSchema, target: StructType, allocator: BufferAllocator) {
  private val schema = EntryColumns.decodeSchema(stored.message)

  /** The number of columns of the stored rows. */
  val storedColumns: Int = schema.getFields.size

  private val loader = new ColumnLoader(schema.getFields.asScala.toIndexedSeq, allocator)

  /** Whether a row of `[from, until)` may pass a filter, by the columns of the filter alone. */
  def mayPass(message: EntryMessage, filter: RowFilter, from: Int, until: Int): Boolean = {
    val vectors = mutable.Map.empty[Int, FieldVector]
    try {
      filter.places.foreach(place => vectors(place) = loader.load(message, place))
      new RowTest(filter, vectors.toMap).mayPass(from, until)
    } finally vectors.values.foreach(_.close())
  }

  /** The rows `[from, until)` of an entry. The caller closes the batch.
    *
    * @param firstOffset
    *   the offset of the entry's first row
    */
  def batch(
      message: EntryMessage,
      range: ScanRange,
      entryId: Long,
      firstOffset: Long,
      from: Int,
      until: Int
  ): ColumnarBatch = {
    val rows = until - from
    val made = mutable.ArrayBuffer.empty[ColumnVector]
    try {
      stored.origins.zip(target.fields).foreach { case (origin, field) =>
        made += (origin match {
          case ColumnOrigin.Stored(place) =>
            val vector = sliced(loader.load(message, place), from, rows, message.rows)
            MemoryColumn.of(vector, field.dataType)
          case ColumnOrigin.Missing =>
            val nulls = new ConstantColumnVector(rows, field.dataType)
            nulls.setNull()
            nulls
          case ColumnOrigin.Metadata(name) =>
            metadata(name, range, entryId, firstOffset + from, rows)
        })
      }
      new ColumnarBatch(made.toArray, rows)
    } catch {
      case error: Throwable =>
        made.foreach(_.close())
        throw error
    }
  }

  private def sliced(vector: FieldVector, from: Int, rows: Int, all: Int): FieldVector =
    if (rows == all) vector
    else
      try {
        val transfer = vector.getTransferPair(allocator)
        transfer.splitAndTransfer(from, rows)
        transfer.getTo.asInstanceOf[FieldVector]
      } finally vector.close()

  private def metadata(
      name: String,
      range: ScanRange,
      entryId: Long,
      offset: Long,
      rows: Int
  ): ColumnVector = name match {
    case "_log" =>
      val log = new ConstantColumnVector(rows, StringType)
      log.setUtf8String(UTF8String.fromString(range.log))
      log
    case "_ledger" => number(rows, range.ledgerId)
    case "_entry" => number(rows, entryId)
    case "_offset" => new OffsetColumn(offset)
    case "_append_time" =>
      val times = range.commitTimes.dropWhile(_._1 <= offset).toIndexedSeq
      new CommitTimeColumn(offset, times)
    case _ => throw LedgerLogException.wireFormat(s"the plan names a metadata column $name")
  }

  private def number(rows: Int, value: Long): ColumnVector = {
    val column = new ConstantColumnVector(rows, LongType)
    column.setLong(value)
    column
  }
}

object EntryColumns {

  /** Decode an Arrow schema message. */
  def decodeSchema(message: Array[Byte]): Schema =
    try
      MessageSerializer.deserializeSchema(
        new ReadChannel(Channels.newChannel(new ByteArrayInputStream(message)))
      )
    catch {
      case NonFatal(error) =>
        throw LedgerLogException.wireFormat(s"not an Arrow schema message: $error", error)
    }
}
