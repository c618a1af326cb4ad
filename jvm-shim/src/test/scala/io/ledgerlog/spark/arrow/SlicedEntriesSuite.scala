package io.ledgerlog.spark.arrow

import java.nio.ByteBuffer
import java.util.zip.CRC32C

import io.ledgerlog.spark.{GoldenRange, LedgerLogException}
import io.ledgerlog.spark.wire.{EntrySlices, StoredSlice}
import org.apache.arrow.memory.RootAllocator
import org.apache.spark.sql.vectorized.ColumnarBatch

class SlicedEntriesSuite extends munit.FunSuite {
  private val all = GoldenRange.target.fields.indices

  /** Run with the slices of some columns of entry 1, and return what `body` makes of its batch. */
  private def withBatch[A](
      payload: Array[Byte],
      entry: Array[Int],
      requested: Seq[Int],
      wanted: Seq[Int]
  )(body: ColumnarBatch => A): A = {
    val slices = new EntrySlices(1, IndexedSeq(entry), requested)
    val received = slices
      .rangesOf(1)
      .flatMap(range => payload.slice(range.place, range.place + range.size))
      .toArray
    assertEquals(received.length, slices.sizeOf(1))
    val view = ByteBuffer.wrap(received)
    val found = StoredSlice(0, received.length)
    assert(slices.isValid(1, view, found, new CRC32C))
    val allocator = new RootAllocator(64L << 20)
    try {
      val bytes = allocator.buffer(received.length + 5L)
      try {
        bytes.setBytes(5, received)
        val message = EntryMessage.decode(bytes, 5, received.length, Some(slices.bodyOf(1)))
        val columns =
          new EntryColumns(
            GoldenRange.stored(wanted: _*),
            GoldenRange.columns(wanted: _*),
            allocator
          )
        val batch = columns.batch(message, GoldenRange.range(), 1, 0, 0, message.rows)
        try body(batch)
        finally batch.close()
      } finally bytes.close()
    } finally allocator.close()
  }

  GoldenRange.Compressions.foreach { compression =>
    test(s"slices of entries with compression $compression have the rows that Python wrote") {
      val choices = all.map(Seq(_)) ++ all.map(last => Seq(last, 0).distinct) ++
        Seq(Nil, Seq(5, 2, 6), Seq(7, 4, 3, 1), all)
      GoldenRange.payloads(compression).zip(GoldenRange.slices(compression)).zipWithIndex.foreach {
        case ((payload, entry), number) =>
          choices.foreach { places =>
            withBatch(payload, entry, places, places) { batch =>
              assertEquals(batch.numRows, GoldenRange.BatchRows)
              val first = number * GoldenRange.BatchRows
              assertEquals(GoldenRange.mistake(batch, first, places), None)
            }
          }
      }
    }

    test(s"columns that were left out are refused with compression $compression") {
      val (payload, entry) =
        (GoldenRange.payloads(compression).head, GoldenRange.slices(compression).head)
      // A column of nulls has no bytes, so it is complete without its slice.
      all.filterNot(GoldenRange.target.fields(_).name == "nothing").foreach { place =>
        val others = all.filterNot(_ == place)
        val error =
          intercept[LedgerLogException](withBatch(payload, entry, others, Seq(place))(_ => ()))
        assertEquals(error.kind, LedgerLogException.WireFormat)
      }
    }
  }

  test("an entry without rows needs no bytes of its columns") {
    val payload = GoldenRange.payloads("none").last
    val header = 8 + ByteBuffer.wrap(payload, 4, 4).order(java.nio.ByteOrder.LITTLE_ENDIAN).getInt()
    val lengths = Seq(header, payload.length - header) ++ Seq.fill(all.size - 1)(0)
    val entry = GoldenRange.slicesOf(payload, lengths)
    Seq(Seq(0), Seq(2, 5), Nil, all).foreach { places =>
      withBatch(payload, entry, places, places)(batch => assertEquals(batch.numRows, 0))
    }
  }

  test("damaged slices are not valid") {
    val payload = GoldenRange.payloads("zstd").head
    val slices = new EntrySlices(1, GoldenRange.slices("zstd").take(1), Seq(0, 4))
    val received = slices
      .rangesOf(1)
      .flatMap(range => payload.slice(range.place, range.place + range.size))
      .toArray
    def isValid(bytes: Array[Byte]): Boolean =
      slices.isValid(1, ByteBuffer.wrap(bytes), StoredSlice(0, bytes.length), new CRC32C)
    assert(isValid(received))
    received.indices.foreach { place =>
      received(place) = (received(place) ^ 1).toByte
      assert(!isValid(received), place)
      received(place) = (received(place) ^ 1).toByte
    }
    Seq(received.drop(1), received.init, received :+ 0.toByte, Array.emptyByteArray)
      .foreach(bytes => assert(!isValid(bytes)))
    assertEquals(slices.sizeOf(1), received.length)
    Seq(0L, 2L, -1L).foreach(id => intercept[LedgerLogException](slices.rangesOf(id)))
  }

  test("slices in an index that do not describe the entries are refused") {
    def decode(slices: Seq[Int], bytes: Seq[Long] = Seq(30)): RangeIndex = {
      val joined = slices.foldLeft(ByteBuffer.allocate(4 * slices.size))(_.putInt(_)).array
      val text = java.util.Base64.getEncoder.encodeToString(joined)
      val rows = bytes.map(_ => 1).mkString(",")
      RangeIndex.decode(
        5,
        s"""{"format":1,"rows":[$rows],"bytes":[${bytes.mkString(",")}],"slices":"$text"}"""
      )
    }
    assertEquals(
      decode(Seq(10, 0, 15, 0, 5, 0)).slices.map(_.toSeq),
      IndexedSeq(Seq(10, 0, 15, 0, 5, 0))
    )
    val half = 1 << 30
    Seq(
      (Nil, Seq(30L)),
      (Seq(10, 0, 15, 0, 5), Seq(30L)),
      (Seq(10, 0, 20, 0), Seq(30L)), // one column
      (Seq(10, 0, 15, 0, 4, 0), Seq(30L)),
      (Seq(0, 0, 25, 0, 5, 0), Seq(30L)),
      (Seq(10, 0, 25, 0, -5, 0), Seq(30L)),
      (Seq(10, 0, 15, 0, 5, 0), Seq(30L, 30L)),
      (Seq(half, 0, half, 0, half, 0), Seq(3L * half))
    ).foreach { case (slices, bytes) =>
      assertEquals(decode(slices, bytes).slices, IndexedSeq.empty[Array[Int]])
    }
    Seq("\"%\"", "null", "\"\"", "7").foreach { slices =>
      val text = s"""{"format":1,"rows":[1],"bytes":[30],"slices":$slices}"""
      assertEquals(RangeIndex.decode(5, text).slices, IndexedSeq.empty[Array[Int]])
    }
  }
}
