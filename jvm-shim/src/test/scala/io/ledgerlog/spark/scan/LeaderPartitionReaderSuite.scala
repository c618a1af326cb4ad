package io.ledgerlog.spark.scan

import scala.collection.mutable

import io.ledgerlog.spark.{FakeBookie, FakeStore, LeaderRange, LedgerLogException, Ledgers}
import io.ledgerlog.spark.plan._
import io.ledgerlog.spark.read.ReadSettings

class LeaderPartitionReaderSuite extends munit.FunSuite {
  private val record = LedgerRecord(1, 1, Seq(Fragment(0, Seq("a"))), None, DigestKind.Crc32c)
  private val records = LeaderRange.records.flatten.map(_.toSeq)

  private val entries: Map[(Long, Long), Array[Byte]] =
    LeaderRange.recordEntries.zipWithIndex.map { case (payload, place) =>
      (7L, place.toLong) -> Ledgers.stored(7, place.toLong, payload)
    }.toMap

  /** Read a range, and return the values and the entries that were requested. */
  private def valuesOf(
      range: ScanRange,
      stored: Map[(Long, Long), Array[Byte]] = entries,
      failOnDataLoss: Boolean = true
  ): (Seq[Seq[Byte]], Seq[Long]) = {
    val bookie = new FakeBookie(stored)
    val asked = mutable.ArrayBuffer.empty[Long]
    bookie.answer = request => {
      asked.synchronized(asked ++= request.first until request.first + request.count)
      FakeBookie.Serve
    }
    val partition = new LedgerPartition(
      ranges = Seq(range),
      ledgers = Map(7L -> record),
      bookies = Map("a" -> bookie.address),
      schemas = Seq(LeaderRange.recordSchema),
      service = ServiceAddress("none", "/ledgers", Map.empty),
      password = Array.emptyByteArray,
      failOnDataLoss = failOnDataLoss,
      target = LeaderRange.recordTarget,
      limit = None
    )
    val before = Allocators.allocatedBytes
    val reader = new LedgerPartitionReader(
      partition,
      ReadSettings(reconnectDelayMs = 10, readTimeoutMs = 400),
      new FakeStore(Map(7L -> record), Map("a" -> bookie.address)),
      Allocators.forTask("test"),
      () => ()
    )
    val found = mutable.ArrayBuffer.empty[Seq[Byte]]
    try
      while (reader.next()) {
        val batch = reader.get()
        found ++= (0 until batch.numRows).map(batch.column(0).getBinary(_).toSeq)
      }
    finally {
      reader.close()
      bookie.close()
    }
    assertEquals(Allocators.allocatedBytes, before)
    (found.toSeq, asked.toSeq)
  }

  private def between(start: Int, end: Int): ScanRange = LeaderRange.ofRecords.copy(
    startOffset = LeaderRange.offset + start,
    endOffset = LeaderRange.offset + end,
    rows = end - start.toLong
  )

  test("a task returns the records of its range") {
    assertEquals(valuesOf(LeaderRange.ofRecords)._1, records)
  }

  test("an open ledger is read up to the planned end and not beyond it") {
    val planned = LeaderRange.ofRecords.copy(
      lastEntryId = 1,
      rows = 203,
      endOffset = LeaderRange.offset + 203,
      entryRows = Some((0, 203))
    )
    val (found, asked) = valuesOf(planned)
    assertEquals(found, records.take(203))
    assert(!asked.contains(2L), asked)
  }

  test("a search reads headers, and then only the entries with wanted rows") {
    val (found, asked) = valuesOf(between(50, 60).copy(isSearched = true))
    assertEquals(found, records.slice(50, 60))
    assertEquals(asked, Seq(0L, 2L, 1L, 1L))
    val (same, all) = valuesOf(between(50, 60))
    assertEquals(same, found)
    assertEquals(all.toSet, Set(0L, 1L, 2L))
  }

  test("a range without wanted rows is not read") {
    val piece = between(1, 2).copy(firstEntryId = 1, entryRows = None, isSearched = true)
    assertEquals(valuesOf(piece)._1, Nil)
  }

  test("if a search finds a lost entry, the range is read, and reports the loss") {
    val lost = entries - ((7L, 1L))
    val searched = between(2, 204).copy(isSearched = true, entryRows = None)
    val error = intercept[LedgerLogException](valuesOf(searched, lost))
    assertEquals(error.kind, LedgerLogException.DataLoss)
    assertEquals(valuesOf(searched, lost, failOnDataLoss = false)._1, records.slice(2, 3))
  }

  test("entries that the list does not describe are refused") {
    val moved = LeaderRange.ofRecords.copy(rangeOffset = LeaderRange.offset + 1)
    val error = intercept[LedgerLogException](valuesOf(moved))
    assert(
      error.text.contains("this source wrote no such entry") || error.text.contains("was expected")
    )
    val longer = LeaderRange.ofRecords.copy(entryRows = Some((0, 205)))
    assert(intercept[LedgerLogException](valuesOf(longer)).text.contains("are listed"))
  }
}
