package io.ledgerlog.spark.wire

import java.nio.ByteBuffer

import io.ledgerlog.spark.{LeaderRange, LedgerLogException}

class LeaderHeaderSuite extends munit.FunSuite {
  private val entry = LeaderRange.recordEntries.head

  private def error(bytes: Array[Byte]): LedgerLogException =
    intercept[LedgerLogException](LeaderHeader.decode(ByteBuffer.wrap(bytes)))

  private def changed(place: Int, bytes: Byte*): Array[Byte] = {
    val copy = entry.clone()
    bytes.zipWithIndex.foreach { case (byte, at) => copy(place + at) = byte }
    copy
  }

  test("a header has the fields that Python wrote") {
    val headers =
      LeaderRange.recordEntries.map(each => LeaderHeader.decode(ByteBuffer.wrap(each)))
    assertEquals(headers.map(_.count), LeaderRange.records.map(_.size))
    assertEquals(headers.map(_.firstOffset), Vector(0L, 3L, 203L).map(LeaderRange.offset + _))
    assertEquals(headers.map(_.appendTimeMs), Vector(0L, 1L, 2L).map(LeaderRange.timeMs + _))
    assertEquals(headers(0).codec, LeaderCodec.Plain: LeaderCodec)
    assertEquals(headers(1).codec, LeaderCodec.Lz4: LeaderCodec)
    assertEquals(headers(2).endOffset, LeaderRange.offset + 204)
  }

  test("an entry that is cut off, or of another kind, is refused") {
    (0 until LeaderHeader.Size).foreach(size => error(entry.take(size)))
    error(entry.init)
    assert(error(changed(0, 'X')).text.contains("not an entry of a leader log"))
    assertEquals(error(changed(2, 2)).kind, LedgerLogException.MetadataFormat)
    assert(error(changed(3, 3)).text.contains("unknown codec 3"))
  }

  test("a header with impossible numbers is refused") {
    assert(error(changed(4, -1)).text.contains("offset"))
    assert(
      error(changed(4, 127, -1, -1, -1, -1, -1, -1, -1)).text.contains("offset"),
      "the end of the entry is beyond the last offset"
    )
    assert(error(changed(12, -1)).text.contains("append time"))
    assert(error(changed(20, 0, 0, 0, 0)).text.contains("0 records"))
    assert(error(changed(20, 0x7f, -1, -1, -1)).text.contains("records in"))
    assert(error(changed(24, 1, 0, 0, 1)).text.contains("records in"))
    assert(error(changed(24, -1, -1, -1, -1)).text.contains("records in"))
    assert(error(changed(24, 0, 0, 0, 18)).text.contains("bytes instead of 18"))
  }
}
