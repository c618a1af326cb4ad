package io.ledgerlog.spark

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.plan.{ColumnOrigin, ScanRange, StoredSchema}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType, Schema}
import org.apache.spark.sql.types.{BinaryType, StructType}

/** The entries in `tests/golden/leader_entries`, as ledger 7 from entry 0 on. */
object LeaderRange {
  private val golden = Golden.leaderEntries
  val offset: Long = golden.get("offset").asLong
  val timeMs: Long = golden.get("time_ms").asLong

  val records: IndexedSeq[IndexedSeq[Array[Byte]]] =
    golden
      .get("records")
      .elements
      .asScala
      .map(_.elements.asScala.map(Golden.base64).toIndexedSeq)
      .toIndexedSeq
  val recordEntries: IndexedSeq[Array[Byte]] = listOf("record_entries")
  val recordTarget: StructType = new StructType().add("value", BinaryType)
  val recordSchema: StoredSchema = {
    val field = new Field("value", FieldType.nullable(new ArrowType.Binary), null)
    val message = new Schema(Seq(field).asJava).serializeAsMessage
    StoredSchema("x", 0, message, Seq(ColumnOrigin.Stored(0)))
  }

  def rowEntries(compression: String): IndexedSeq[Array[Byte]] =
    golden
      .get("row_entries")
      .get(compression)
      .elements
      .asScala
      .map(Golden.base64)
      .toIndexedSeq

  /** The range with all records. */
  def ofRecords: ScanRange = {
    val rows = records.map(_.size).sum.toLong
    GoldenRange
      .range()
      .copy(
        firstEntryId = 0,
        lastEntryId = 2,
        rows = rows,
        rangeOffset = offset,
        startOffset = offset,
        endOffset = offset + rows,
        commitTimes = Nil,
        entryRows = Some((0, rows)),
        form = ScanRange.LeaderRecords
      )
  }

  /** The range with all rows. */
  def ofRows: ScanRange =
    ofRecords.copy(
      rows = GoldenRange.Rows,
      endOffset = offset + GoldenRange.Rows,
      entryRows = Some((0, GoldenRange.Rows)),
      form = ScanRange.LeaderRows
    )

  private def listOf(name: String): IndexedSeq[Array[Byte]] =
    golden.get(name).elements.asScala.map(Golden.base64).toIndexedSeq
}
