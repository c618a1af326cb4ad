package io.ledgerlog.spark.arrow

import java.nio.ByteBuffer
import java.util.Random

import io.ledgerlog.spark.{GoldenRange, LeaderRange, LedgerLogException}
import io.ledgerlog.spark.plan.{ColumnOrigin, ScanRange, StoredSchema}
import io.ledgerlog.spark.wire.LeaderHeader
import org.apache.arrow.memory.RootAllocator
import org.apache.spark.sql.types.{LongType, StructType, TimestampType}
import org.apache.spark.sql.vectorized.ColumnarBatch

class EntryRowsSuite extends munit.FunSuite {
  private val recordsOnly = LeaderRange.recordTarget

  /** Decode an entry at an odd place of a buffer. The memory has to be empty at the end. */
  private def read[A](
      range: ScanRange,
      payload: Array[Byte],
      stored: StoredSchema = LeaderRange.recordSchema,
      target: StructType = recordsOnly
  )(body: (ColumnarBatch, Long) => A): A = {
    val allocator = new RootAllocator(64L << 20)
    try {
      val bytes = allocator.buffer(payload.length + 3L)
      try {
        bytes.setBytes(3, payload)
        val rows = EntryRows.decode(range, bytes, 3, payload.length, None, allocator)
        try {
          val first = range.rangeOffset + rows.firstRow
          val batch = new EntryColumns(stored, target, allocator)
            .batch(rows.message, rows.timed(range), 0, first, 0, rows.message.rows)
          try body(batch, rows.firstRow)
          finally batch.close()
        } finally rows.close()
      } finally bytes.close()
    } finally allocator.close()
  }

  private def valuesOf(batch: ColumnarBatch): Seq[Seq[Byte]] =
    (0 until batch.numRows).map(batch.column(0).getBinary(_).toSeq)

  private def error(range: ScanRange, payload: Array[Byte]): LedgerLogException =
    intercept[LedgerLogException](read(range, payload)((_, _) => ()))

  test("records have the values that Python wrote, plain and compressed") {
    LeaderRange.recordEntries.zip(LeaderRange.records).foreach { case (entry, records) =>
      read(LeaderRange.ofRecords, entry) { (batch, _) =>
        assertEquals(valuesOf(batch), records.map(_.toSeq))
      }
    }
    val firstRows =
      LeaderRange.recordEntries.map(read(LeaderRange.ofRecords, _)((_, first) => first))
    assertEquals(firstRows, Vector(0L, 3L, 203L))
  }

  Seq("zstd", "none").foreach { compression =>
    test(s"rows with compression $compression have the values that Python wrote") {
      val all = GoldenRange.target.fields.indices
      LeaderRange.rowEntries(compression).zipWithIndex.foreach { case (entry, number) =>
        val first = number * GoldenRange.BatchRows
        read(LeaderRange.ofRows, entry, GoldenRange.stored(all: _*), GoldenRange.target) {
          (batch, firstRow) =>
            assertEquals(firstRow, first.toLong)
            assertEquals(GoldenRange.mistake(batch, first), None)
        }
      }
    }
  }

  test("the times of rows are the times of their entries") {
    val stored = LeaderRange.recordSchema.copy(
      origins = Seq(ColumnOrigin.Metadata("_append_time"), ColumnOrigin.Metadata("_offset"))
    )
    val target = new StructType().add("_append_time", TimestampType).add("_offset", LongType)
    read(LeaderRange.ofRecords, LeaderRange.recordEntries(1), stored, target) { (batch, _) =>
      val times = (0 until batch.numRows).map(batch.column(0).getLong).distinct
      assertEquals(times, Vector((LeaderRange.timeMs + 1) * 1000))
      assertEquals(batch.column(1).getLong(199), LeaderRange.offset + 202)
      assert(!batch.column(0).hasNull)
    }
  }

  test("entries of another form than that of the log are refused") {
    val rows = LeaderRange.rowEntries("none").head
    val records = LeaderRange.recordEntries.head
    assert(error(LeaderRange.ofRecords, rows).text.contains("records were expected"))
    assert(error(LeaderRange.ofRows, records).text.contains("the leader log has rows"))
    error(GoldenRange.range(), records)
    error(LeaderRange.ofRecords.copy(form = "other"), records)
    val claims = rows.clone()
    ByteBuffer.wrap(claims).putInt(20, GoldenRange.BatchRows + 1)
    assert(error(LeaderRange.ofRows, claims).text.contains("rows, but its header states"))
  }

  private def withLengths(lengths: Int*): Array[Byte] = {
    val entry = LeaderRange.recordEntries.head.clone()
    val body = ByteBuffer.wrap(entry).position(LeaderHeader.Size)
    lengths.foreach(body.putInt)
    entry
  }

  test("lengths that do not match the body are refused") {
    read(LeaderRange.ofRecords, withLengths(0, 5, 0))((batch, _) =>
      assertEquals(valuesOf(batch).map(_.size), Vector(0, 5, 0))
    )
    Seq(
      Seq(2, 0, 2),
      Seq(2, 0, 4),
      Seq(-1, 3, 3),
      Seq(6, -1, 0),
      Seq(Int.MaxValue, Int.MaxValue, 7),
      Seq(Int.MinValue, Int.MinValue, 5)
    ).foreach { lengths =>
      val found = error(LeaderRange.ofRecords, withLengths(lengths: _*))
      assert(found.text.contains("lengths of 3 records do not match"), found.text)
    }
  }

  test("a compressed body of another size than its header states is refused") {
    val entry = LeaderRange.recordEntries(1)
    val size = ByteBuffer.wrap(entry).getInt(24)
    Seq(size - 1, size + 1, LeaderHeader.BodySizeMax).foreach { wrong =>
      val other = entry.clone()
      ByteBuffer.wrap(other).putInt(24, wrong)
      error(LeaderRange.ofRecords, other)
    }
    error(LeaderRange.ofRecords, entry.dropRight(1))
  }

  test("any bytes are refused with a clear error, or read") {
    val random = new Random(5)
    (0 until 2000).foreach { round =>
      val entry = LeaderRange.recordEntries(round % 2).clone()
      (0 to random.nextInt(3)).foreach { _ =>
        entry(random.nextInt(entry.length)) = random.nextInt().toByte
      }
      try read(LeaderRange.ofRecords, entry)((batch, _) => valuesOf(batch): Unit)
      catch {
        case error: LedgerLogException =>
          val kinds = Set(LedgerLogException.WireFormat, LedgerLogException.MetadataFormat)
          assert(kinds(error.kind), error)
      }
    }
  }
}
