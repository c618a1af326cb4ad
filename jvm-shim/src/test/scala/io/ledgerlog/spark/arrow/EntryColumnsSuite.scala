package io.ledgerlog.spark.arrow

import java.io.ByteArrayOutputStream
import java.nio.channels.Channels
import java.util.Random

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.{GoldenRange, LedgerLogException}
import io.ledgerlog.spark.plan.{ColumnOrigin, StoredSchema}
import org.apache.arrow.memory.{ArrowBuf, RootAllocator}
import org.apache.arrow.vector.ipc.WriteChannel
import org.apache.arrow.vector.ipc.message.{ArrowFieldNode, ArrowRecordBatch, MessageSerializer}
import org.apache.arrow.vector.types.pojo.{ArrowType, Field, FieldType}
import org.apache.spark.sql.types.{LongType, StringType, StructType, TimestampType}
import org.apache.spark.sql.vectorized.ColumnarBatch

class EntryColumnsSuite extends munit.FunSuite {
  private val all = GoldenRange.target.fields.indices

  /** Run with an allocator that has to be empty at the end. */
  private def withMemory[A](body: RootAllocator => A): A = {
    val allocator = new RootAllocator(256L << 20)
    try body(allocator)
    finally allocator.close()
  }

  /** Run with the bytes at an odd place of a buffer, as they are in an answer. */
  private def withEntry[A](allocator: RootAllocator, payload: Array[Byte])(
      body: (ArrowBuf, Int) => A
  ): A = {
    val bytes = allocator.buffer(payload.length + 3L)
    try {
      bytes.setBytes(3, payload)
      body(bytes, 3)
    } finally bytes.close()
  }

  private def batchOf(
      allocator: RootAllocator,
      payload: Array[Byte],
      stored: StoredSchema,
      target: StructType,
      from: Int = 0,
      until: Int = GoldenRange.BatchRows
  ): ColumnarBatch = withEntry(allocator, payload) { (bytes, place) =>
    val message = EntryMessage.decode(bytes, place, payload.length)
    new EntryColumns(stored, target, allocator)
      .batch(message, GoldenRange.range(), 1, message.firstRow, from, until)
  }

  GoldenRange.Compressions.foreach { compression =>
    test(s"entries with compression $compression have the rows that Python wrote") {
      withMemory { allocator =>
        GoldenRange.payloads(compression).take(GoldenRange.Entries).zipWithIndex.foreach {
          case (payload, number) =>
            val first = number * GoldenRange.BatchRows
            val batch =
              batchOf(allocator, payload, GoldenRange.stored(all: _*), GoldenRange.target)
            try assertEquals(GoldenRange.mistake(batch, first), None)
            finally batch.close()
        }
      }
    }
  }

  test("a slice has its rows only") {
    withMemory { allocator =>
      val batch = batchOf(
        allocator,
        GoldenRange.payloads("zstd")(1),
        GoldenRange.stored(all: _*),
        GoldenRange.target,
        from = 9,
        until = 22
      )
      try {
        assertEquals(batch.numRows, 13)
        assertEquals(GoldenRange.mistake(batch, GoldenRange.BatchRows + 9), None)
      } finally batch.close()
    }
  }

  test("columns in any order, with missing ones and metadata") {
    val origins = Seq(
      ColumnOrigin.Stored(7),
      ColumnOrigin.Missing,
      ColumnOrigin.Stored(0),
      ColumnOrigin.Metadata("_log"),
      ColumnOrigin.Metadata("_ledger"),
      ColumnOrigin.Metadata("_entry"),
      ColumnOrigin.Metadata("_offset"),
      ColumnOrigin.Metadata("_append_time")
    )
    val target = new StructType()
      .add(GoldenRange.target.fields(7))
      .add("new", new StructType().add("x", LongType))
      .add(GoldenRange.target.fields(0))
      .add("_log", StringType)
      .add("_ledger", LongType)
      .add("_entry", LongType)
      .add("_offset", LongType)
      .add("_append_time", TimestampType)
    withMemory { allocator =>
      val stored = StoredSchema("x", 0, GoldenRange.schema, origins)
      val batch = batchOf(allocator, GoldenRange.payloads("none")(0), stored, target, 5, 40)
      try {
        assertEquals(batch.column(0).getInt(0), -5)
        assert(batch.column(1).isNullAt(0) && batch.column(1).hasNull)
        assertEquals(batch.column(2).getLong(34), 39L)
        assertEquals(batch.column(3).getUTF8String(0).toString, "x")
        assertEquals((batch.column(4).getLong(1), batch.column(5).getLong(1)), (7L, 1L))
        assertEquals(batch.column(6).getLong(34), 39L)
        assert(batch.column(7).isNullAt(0))
      } finally batch.close()
    }
  }

  test("the time of a row is that of its commit") {
    val times = IndexedSeq((10L, None), (12L, Some(5L)), (20L, Some(6L)))
    val column = new CommitTimeColumn(8, times)
    val found = (0 until 12).map(row => if (column.isNullAt(row)) -1 else column.getLong(row))
    assertEquals(found.take(6), IndexedSeq[Long](-1, -1, 5000, 5000, 6000, 6000))
    assert(column.hasNull && !new CommitTimeColumn(0, IndexedSeq((9L, Some(1L)))).hasNull)
  }

  test("a scan of one column does not decompress the others") {
    withMemory { allocator =>
      val payload = GoldenRange.payloads("zstd")(0)
      withEntry(allocator, payload) { (bytes, place) =>
        val message = EntryMessage.decode(bytes, place, payload.length)
        // Everything after the first column's buffers is damaged.
        val (from, size) = message.buffers(1)
        val damaged = message.bodyPlace + from + size
        bytes.setZero(damaged, place + payload.length - damaged)
        val one = new EntryColumns(GoldenRange.stored(0), GoldenRange.columns(0), allocator)
        val batch = one.batch(message, GoldenRange.range(), 1, 0, 0, GoldenRange.BatchRows)
        assertEquals(batch.column(0).getLong(39), 39L)
        batch.close()
        val two = new EntryColumns(GoldenRange.stored(0, 7), GoldenRange.columns(0, 7), allocator)
        intercept[LedgerLogException](
          two.batch(message, GoldenRange.range(), 1, 0, 0, GoldenRange.BatchRows)
        )
      }
    }
  }

  test("a column of nulls may have larger buffers than its values need") {
    val text = new Field("element", FieldType.nullable(new ArrowType.Utf8), null)
    val lists = new Field("texts", FieldType.nullable(new ArrowType.List), Seq(text).asJava)
    // The entries of a batch share its zeros, however few rows they have.
    val zerosSize = 32000L
    Seq(4000, 3).foreach { rows =>
      withMemory { allocator =>
        val zeros = allocator.buffer(zerosSize)
        val empty = allocator.getEmpty
        zeros.setZero(0, zerosSize)
        zeros.writerIndex(zerosSize)
        val offsets = zeros.slice(0, 4L * (rows + 1)).writerIndex(4L * (rows + 1))
        val validity = zeros.slice(0, (rows + 7) / 8L).writerIndex((rows + 7) / 8L)
        val sent = new ByteArrayOutputStream
        val nodes = Seq(new ArrowFieldNode(rows.toLong, rows.toLong), new ArrowFieldNode(0, 0))
        val batch = new ArrowRecordBatch(
          rows,
          nodes.asJava,
          Seq(validity, offsets, empty, zeros, empty).asJava
        )
        try MessageSerializer.serialize(new WriteChannel(Channels.newChannel(sent)), batch): Unit
        finally {
          batch.close()
          zeros.close()
        }
        val payload = sent.toByteArray
        withEntry(allocator, payload) { (bytes, place) =>
          val message = EntryMessage.decode(bytes, place, payload.length)
          val vector = new ColumnLoader(IndexedSeq(lists), allocator).load(message, 0)
          try {
            assertEquals((vector.getValueCount, vector.getNullCount), (rows, rows))
            assert((0 until rows).forall(vector.isNull))
          } finally vector.close()
        }
      }
    }
  }

  test("the index entry of a range tells the rows of its entries") {
    withMemory { allocator =>
      val payload = GoldenRange.payloads("zstd").last
      withEntry(allocator, payload) { (bytes, place) =>
        val message = EntryMessage.decode(bytes, place, payload.length)
        val index = RangeIndex.decode(GoldenRange.IndexEntryId, message.index.get)
        assertEquals(index.rowEdges, IndexedSeq(0L, 40L, 80L, 120L))
        val part = index.needed(GoldenRange.range(45, 80)).get
        assertEquals((part.firstEntryId, part.lastEntryId), (2L, 2L))
        assertEquals((part.entryRows, part.rows), (Some((40L, 80L)), 35L))
        val wide = index.needed(GoldenRange.range(39, 81)).get
        assertEquals((wide.firstEntryId, wide.lastEntryId), (1L, 3L))
        assertEquals(wide.sizeBytes, index.byteEdges.last)
        val outside = GoldenRange.range().copy(lastEntryId = 5)
        intercept[LedgerLogException](index.needed(outside))
      }
    }
  }

  test("an index that is not one is refused") {
    Seq(
      "",
      "[]",
      "{}",
      """{"format":2,"rows":[1],"bytes":[1]}""",
      """{"format":1,"rows":[],"bytes":[]}""",
      """{"format":1,"rows":[0],"bytes":[1]}""",
      """{"format":1,"rows":[1,1],"bytes":[1]}""",
      """{"format":1,"rows":[1,1,1,1,1],"bytes":[1,1,1,1,1]}"""
    ).foreach(text => intercept[LedgerLogException](RangeIndex.decode(4, text)))
  }

  GoldenRange.Compressions.foreach { compression =>
    test(s"damaged entries with compression $compression give rows or a clear error") {
      val random = new Random(13)
      val whole = GoldenRange.payloads(compression)(0)
      var refused = 0
      withMemory { allocator =>
        (0 until 1000).foreach { round =>
          val damaged =
            if (round % 10 == 0) whole.take(random.nextInt(whole.length)) else whole.clone()
          if (damaged.nonEmpty)
            (0 to random.nextInt(3)).foreach { _ =>
              // The first bytes have the sizes and the offsets of everything else.
              val place =
                random.nextInt(
                  if (random.nextBoolean()) damaged.length else damaged.length.min(1200)
                )
              damaged(place) = random.nextInt(256).toByte
            }
          try {
            val batch =
              batchOf(allocator, damaged, GoldenRange.stored(all: _*), GoldenRange.target)
            // Every value is read, because Spark reads the memory without checks.
            try GoldenRange.mistake(batch, 0): Unit
            catch {
              case _: ArithmeticException => () // a decimal with too many digits for its type
            } finally batch.close()
          } catch {
            case _: LedgerLogException => refused += 1
          }
          assertEquals(allocator.getAllocatedMemory, 0L)
        }
      }
      assert(refused > 100, s"$refused were refused")
    }
  }
}
