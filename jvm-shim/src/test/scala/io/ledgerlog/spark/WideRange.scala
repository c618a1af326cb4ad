package io.ledgerlog.spark

import java.io.ByteArrayOutputStream
import java.nio.{ByteBuffer, ByteOrder}
import java.nio.channels.Channels
import java.util.Base64

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.plan.{ColumnOrigin, RowFilter, ScanRange, StoredSchema}
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.MessageSerializer
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, Schema}
import org.apache.spark.sql.types._

/** A range whose entries have a small column `x`, and a large column `text`.
  *
  * @param values
  *   for each entry the values of `x` in its rows
  * @param ledgerId
  *   the ledger, whose entry 0 is not part of the range
  * @param firstOffset
  *   the offset of the first row, which is also the first value of `k`
  */
final class WideRange(
    val values: IndexedSeq[IndexedSeq[Option[Long]]],
    ledgerId: Long,
    firstOffset: Long = 0
) {
  private val rowEdges = values.map(_.size).scanLeft(0)(_ + _)
  private val encoded = values.indices.map { place =>
    val rows = values(place)
    Batches.sized(
      "ledgerlog.first_row",
      rowEdges(place).toString,
      rows.size,
      Seq(
        WideRange.longs(rows.indices.map(row => Some(firstOffset + rowEdges(place) + row))),
        WideRange.longs(rows),
        WideRange.texts(rows.size)
      )
    )
  }

  val indexEntryId: Long = values.size + 1L
  val payloads: IndexedSeq[Array[Byte]] = encoded.map(_._1)

  /** The sizes of the header and the columns of each entry. */
  val sizes: IndexedSeq[Seq[Int]] = encoded.map(_._2)

  val slices: IndexedSeq[Array[Int]] = encoded.map { case (payload, lengths) =>
    GoldenRange.slicesOf(payload, lengths)
  }

  def index(listed: Seq[Array[Int]] = slices): Array[Byte] = {
    val joined =
      listed.flatten.foldLeft(ByteBuffer.allocate(4 * listed.map(_.length).sum))(_.putInt(_))
    val text = Base64.getEncoder.encodeToString(joined.array)
    val rows = values.map(_.size).mkString(",")
    val bytes = payloads.map(_.length).mkString(",")
    Batches.message(
      "ledgerlog.index",
      s"""{"format":1,"rows":[$rows],"bytes":[$bytes],"slices":"$text"}"""
    )
  }

  /** The entries of the ledger, the index last. */
  def stored(last: Array[Byte] = index()): Map[(Long, Long), Array[Byte]] =
    (payloads :+ last).zipWithIndex.map { case (payload, place) =>
      (ledgerId, place + 1L) -> Ledgers.stored(ledgerId, place + 1L, payload)
    }.toMap

  def range(from: Int = 0, until: Int = rowEdges.last): ScanRange = ScanRange(
    log = "x",
    ledgerId = ledgerId,
    firstEntryId = 1,
    lastEntryId = values.size.toLong,
    rows = until - from.toLong,
    sizeBytes = payloads.map(_.length.toLong).sum,
    schemaId = 0,
    rangeOffset = firstOffset,
    startOffset = firstOffset + from,
    endOffset = firstOffset + until,
    commitTimes = Nil,
    indexEntryId = ScanRange.NoEntry,
    entryRows = Some((0, rowEdges.last.toLong)),
    form = ScanRange.ArrowStream,
    isSearched = false,
    slicesEntryId = indexEntryId
  )
}

object WideRange {

  /** The columns `k` and `text`, and the offset of each row. */
  val target: StructType =
    new StructType().add("k", LongType).add("text", StringType).add("_offset", LongType)

  /** Bytes of the texts of an entry. */
  val TextBytes = 80000

  /** The schema of a scan with the filter `x = 1`. */
  def schema(filter: Option[RowFilter] = Some(isOne)): StoredSchema = StoredSchema(
    "x",
    0,
    message,
    Seq(ColumnOrigin.Stored(0), ColumnOrigin.Stored(2), ColumnOrigin.Metadata("_offset")),
    filter
  )

  val isOne: RowFilter = RowFilter.Comparison(1, "=", "integer", Seq(Some(RowFilter.keyOf(1L))))

  private val message = {
    val long = new ArrowType.Int(64, true)
    val fields =
      Seq("k" -> long, "x" -> long, "text" -> new ArrowType.Utf8).map { case (name, kind) =>
        Field.nullable(name, kind)
      }
    val bytes = new ByteArrayOutputStream
    MessageSerializer.serialize(
      new WriteChannel(Channels.newChannel(bytes)),
      new Schema(fields.asJava)
    )
    bytes.toByteArray
  }

  private def longs(values: Seq[Option[Long]]): Batches.Column = {
    val valid = new Array[Byte]((values.size + 7) / 8)
    val data = ByteBuffer.allocate(8 * values.size).order(ByteOrder.LITTLE_ENDIAN)
    values.zipWithIndex.foreach { case (value, row) =>
      if (value.isDefined) valid(row / 8) = (valid(row / 8) | 1 << row % 8).toByte
      data.putLong(value.getOrElse(0L))
    }
    Batches.Column(values.count(_.isEmpty), Seq(valid, data.array))
  }

  private def texts(rows: Int): Batches.Column = {
    val size = TextBytes / rows
    val offsets = ByteBuffer.allocate(4 * (rows + 1)).order(ByteOrder.LITTLE_ENDIAN)
    (0 to rows).foreach(row => offsets.putInt(row * size))
    Batches.Column(
      0,
      Seq(Array.emptyByteArray, offsets.array, Array.fill(rows * size)('t'.toByte))
    )
  }
}
