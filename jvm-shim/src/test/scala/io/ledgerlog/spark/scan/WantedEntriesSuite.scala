package io.ledgerlog.spark.scan

import java.util.Random

import scala.collection.mutable

import io.ledgerlog.spark.{FakeBookie, FakeStore, LedgerLogException, Ledgers, WideRange}
import io.ledgerlog.spark.plan._
import io.ledgerlog.spark.read.ReadSettings

/** Reads of a filter's columns before the others. The filter is `x = 1`. */
class WantedEntriesSuite extends munit.FunSuite {
  private val settings = ReadSettings(reconnectDelayMs = 10, readTimeoutMs = 400)
  private val entryRows = 20

  /** What the last task did. */
  private var asked: Seq[FakeBookie.Asked] = Nil
  private var metrics: Map[String, Long] = Map.empty
  private var found: Seq[Long] = Nil

  private def record(digest: DigestKind) =
    LedgerRecord(1, 1, Seq(Fragment(0, Seq("a"))), None, digest)

  /** A range with a row of `x = 1` in some of its entries. The other values are 0 and nulls. */
  private def rangeOf(
      entries: Int,
      passing: Int => Boolean,
      ledgerId: Long = 7,
      firstOffset: Long = 0
  ): WideRange =
    new WideRange(
      (0 until entries).map { entry =>
        (0 until entryRows).map { row =>
          if (row == entry % entryRows && passing(entry)) Some(1L)
          else if (row % 3 == 0) None
          else Some(0L)
        }
      },
      ledgerId,
      firstOffset
    )

  /** The values of `k` that a task returns, in order. */
  private def keys(
      ranges: Seq[ScanRange],
      entries: Map[(Long, Long), Array[Byte]],
      filter: Option[RowFilter] = Some(WideRange.isOne),
      failOnDataLoss: Boolean = true,
      limit: Option[Long] = None,
      digest: DigestKind = DigestKind.Crc32c,
      answer: FakeBookie.Asked => FakeBookie.Answer = _ => FakeBookie.Serve
  ): Seq[Long] = {
    val requests = mutable.Buffer.empty[FakeBookie.Asked]
    val bookie = new FakeBookie(entries)
    bookie.answer = each => {
      requests.synchronized(requests += each)
      answer(each)
    }
    val ledgers = ranges.map(_.ledgerId -> record(digest)).toMap
    val partition = new LedgerPartition(
      ranges = ranges,
      ledgers = ledgers,
      bookies = Map("a" -> bookie.address),
      schemas = Seq(WideRange.schema(filter)),
      service = ServiceAddress("none", "/ledgers", Map.empty),
      password = Array.emptyByteArray,
      failOnDataLoss = failOnDataLoss,
      target = WideRange.target,
      limit = limit
    )
    val before = Allocators.allocatedBytes
    val rows = mutable.ArrayBuffer.empty[Long]
    val reader = new LedgerPartitionReader(
      partition,
      settings,
      new FakeStore(ledgers, Map("a" -> bookie.address)),
      Allocators.forTask("test"),
      () => ()
    )
    try
      while (reader.next()) {
        val batch = reader.get()
        (0 until batch.numRows).foreach { row =>
          rows += batch.column(0).getLong(row)
          assertEquals(batch.column(2).getLong(row), rows.last)
          assertEquals(batch.column(1).getUTF8String(row).numBytes, WideRange.TextBytes / entryRows)
        }
      }
    finally {
      found = rows.toSeq
      metrics = reader.currentMetricsValues().map(each => each.name -> each.value).toMap
      reader.close()
      bookie.close()
      asked = requests.toSeq
    }
    assertEquals(Allocators.allocatedBytes, before)
    found
  }

  private def rowsOf(entries: Seq[Int], firstOffset: Long = 0): Seq[Long] =
    entries.flatMap(entry => (0L until entryRows).map(firstOffset + entry * entryRows + _))

  test("entries without a row are not read, and their bytes do not leave the bookie") {
    val wide = rangeOf(50, _ == 20)
    assertEquals(keys(Seq(wide.range()), wide.stored()), rowsOf(Seq(20)))
    val ofFilter = wide.sizes.map(sizes => sizes(0) + sizes(2)).sum
    val whole = wide.payloads(20).length
    assertEquals(metrics("payloadBytesRead"), wide.index().length.toLong + ofFilter + whole)
    assertEquals(metrics("entriesRead"), 51L)
    assertEquals(metrics("entriesFiltered"), 49L)
    assertEquals(
      asked.filter(_.isSliced).map(each => (each.first, each.count)).toSet,
      Set((1L, 16), (17L, 16), (33L, 16), (49L, 2))
    )
    assertEquals(asked.filterNot(_.isSliced).map(_.first), Seq(wide.indexEntryId, 21L))
  }

  test("a range without a row is read by its filter alone") {
    val wide = rangeOf(20, _ => false)
    assertEquals(keys(Seq(wide.range()), wide.stored()), Nil)
    assertEquals(metrics("entriesFiltered"), 20L)
  }

  test("chosen entries come in order, and with their own offsets") {
    val one = rangeOf(40, Set(0, 15, 16, 17, 38, 39))
    val other = rangeOf(20, Set(3, 19), ledgerId = 8, firstOffset = 5000)
    val ranges = Seq(one.range(), other.range())
    val expected = rowsOf(Seq(0, 15, 16, 17, 38, 39)) ++ rowsOf(Seq(3, 19), 5000)
    assertEquals(keys(ranges, one.stored() ++ other.stored()), expected)
    val reversed = keys(ranges.reverse, one.stored() ++ other.stored())
    assertEquals(reversed, expected.takeRight(40) ++ expected.dropRight(40))
  }

  test("only rows between the offsets choose an entry") {
    val wide = rangeOf(10, _ => true)
    // Row 0 of entry 0 and row 9 of entry 9 pass, and are outside.
    val part = wide.range(from = 5, until = 9 * entryRows + 9)
    assertEquals(
      keys(Seq(part), wide.stored()),
      rowsOf(1 to 8)
    )
  }

  test("ranges that are read otherwise come between the others") {
    val wide = (0 until 5).map(n => rangeOf(20, _ % 7 == n, 10L + n, 1000L * n))
    val ranges = wide.zipWithIndex.map { case (each, n) =>
      if (n % 2 == 0) each.range() else each.range().copy(slicesEntryId = ScanRange.NoEntry)
    }
    val expected = wide.indices.flatMap { n =>
      rowsOf((0 until 20).filter(entry => n % 2 == 1 || entry % 7 == n), 1000L * n)
    }
    assertEquals(keys(ranges, wide.map(_.stored()).reduce(_ ++ _)), expected)
  }

  test("a filter that leaves out too little is not read any more") {
    val wide = rangeOf(200, _ % 10 > 0)
    val all = keys(Seq(wide.range()), wide.stored())
    // After the first group, the next one is on its way.
    assertEquals(asked.filter(_.isSliced).map(_.first), Seq(1L, 17L))
    assertEquals(all, rowsOf((0 until 200).filter(entry => entry >= 32 || entry % 10 > 0)))
    val useful = rangeOf(200, _ % 4 > 0)
    keys(Seq(useful.range()), useful.stored()): Unit
    assertEquals(asked.filter(_.isSliced).map(_.count).sum, 200)
  }

  test("two groups are on their way, and no more") {
    val wide = rangeOf(100, _ => false)
    val answer =
      (each: FakeBookie.Asked) => if (each.isSliced) FakeBookie.Silence else FakeBookie.Serve
    val got = keys(Seq(wide.range()), wide.stored(), answer = answer)
    assertEquals(asked.filter(_.isSliced).take(2).map(_.first), Seq(1L, 17L))
    assert(asked.filter(_.isSliced).forall(_.first <= 32), asked.size)
    assertEquals(got.takeRight(68 * entryRows), rowsOf(32 until 100))
    assertEquals(got, got.sorted.distinct)
    val pieces = (0 until 50).map { n =>
      wide
        .range()
        .copy(
          firstEntryId = n + 1L,
          lastEntryId = n + 1L,
          entryRows = Some((n * entryRows, n * entryRows + entryRows))
        )
    }
    assertEquals(keys(pieces, wide.stored()), Nil)
    val refuse =
      (each: FakeBookie.Asked) => if (each.isSliced) FakeBookie.Refuse(100) else FakeBookie.Serve
    keys(pieces, wide.stored(), answer = refuse): Unit
    // Groups of one entry do not wait for each other.
    assertEquals(asked.filter(_.isSliced).take(8).map(_.first), 1L to 8L)
  }

  test("one read of each entry, if it cannot be left out") {
    val wide = rangeOf(20, _ => false)
    def isReadOnce(): Unit = {
      assertEquals(found, rowsOf(0 until 20))
      assert(!asked.exists(_.isSliced), asked)
      assertEquals(metrics("entriesFiltered"), 0L)
    }
    keys(Seq(wide.range()), wide.stored(), filter = None): Unit
    isReadOnce()
    keys(Seq(wide.range()), wide.stored(), limit = Some(10000)): Unit
    isReadOnce()
    keys(Seq(wide.range().copy(slicesEntryId = ScanRange.NoEntry)), wide.stored()): Unit
    isReadOnce()
    keys(Seq(wide.range()), wide.stored() - ((7L, wide.indexEntryId))): Unit
    isReadOnce()
    val everything = RowFilter.And(Seq(0, 1, 2).map(RowFilter.IsNull(_, isNegated = false)))
    keys(Seq(wide.range()), wide.stored(), filter = Some(everything)): Unit
    isReadOnce()
    val ofMac = (wide.payloads :+ wide.index()).zipWithIndex.map { case (payload, place) =>
      (7L, place + 1L) -> Ledgers.stored(7, place + 1L, payload, DigestKind.Hmac)
    }.toMap
    keys(Seq(wide.range()), ofMac, digest = DigestKind.Hmac): Unit
    isReadOnce()
  }

  test("a bookie that refuses slices sends whole entries, and few of them twice") {
    val wide = rangeOf(60, _ % 6 == 0)
    val answer =
      (each: FakeBookie.Asked) => if (each.isSliced) FakeBookie.Refuse(100) else FakeBookie.Serve
    val got = keys(Seq(wide.range()), wide.stored(), answer = answer)
    assertEquals(got, rowsOf((0 until 60).filter(entry => entry >= 32 || entry % 6 == 0)))
    assertEquals(asked.filter(_.isSliced).map(_.first), Seq(1L, 17L))
    assertEquals(metrics("entriesRead"), 61L)
  }

  test("slices that are damaged cost time, but no rows") {
    val wide = rangeOf(60, _ % 10 == 0)
    Seq(1, 5).foreach { number => // the checksums of the header and of `x`
      val wrong = wide.slices.map(_.clone())
      wrong(25)(number) += 1
      val got = keys(Seq(wide.range()), wide.stored(wide.index(wrong)))
      assert(rowsOf(Seq(0, 10, 20, 30, 40, 50)).forall(got.contains), got)
      assertEquals(got, got.sorted.distinct)
      // After an entry that came whole, the rest is read once. Two groups were on their way.
      assert(asked.filter(_.isSliced).forall(_.first <= 48), asked)
    }
  }

  test("rows that are lost fail the task after the rows before them") {
    val wide = rangeOf(60, Set(2, 18, 20, 45))
    val lost = wide.stored() - ((7L, 20L))
    val error = intercept[LedgerLogException](keys(Seq(wide.range()), lost))
    assertEquals(error.kind, LedgerLogException.DataLoss)
    assert(error.text.contains("""Set the option "failOnDataLoss" to "false""""), error.text)
    assertEquals(found, rowsOf(Seq(2, 18)))
  }

  test("with failOnDataLoss=false, the rest of a range is skipped") {
    val one = rangeOf(60, Set(2, 18, 20, 45))
    val other = rangeOf(20, Set(7), ledgerId = 8, firstOffset = 5000)
    val lost = one.stored() ++ other.stored() - ((7L, 20L))
    val ranges = Seq(one.range(), other.range())
    assertEquals(
      keys(ranges, lost, failOnDataLoss = false),
      rowsOf(Seq(2, 18)) ++ rowsOf(Seq(7), 5000)
    )
    val gone = ranges.head.copy(ledgerId = 9)
    assertEquals(
      keys(gone +: ranges.tail, lost, failOnDataLoss = false),
      rowsOf(Seq(7), 5000)
    )
  }

  test("an entry that is lost after it was chosen is lost") {
    val wide = rangeOf(20, Set(2, 4, 6))
    val answer = (each: FakeBookie.Asked) =>
      if (!each.isSliced && each.first == 5) FakeBookie.Refuse(2) else FakeBookie.Serve
    val error =
      intercept[LedgerLogException](keys(Seq(wide.range()), wide.stored(), answer = answer))
    assertEquals(error.kind, LedgerLogException.DataLoss)
    assertEquals(found, rowsOf(Seq(2)))
    assertEquals(
      keys(Seq(wide.range()), wide.stored(), answer = answer, failOnDataLoss = false),
      rowsOf(Seq(2))
    )
  }

  test("entries that the list does not describe are refused") {
    val wide = rangeOf(20, _ => false)
    val swapped = wide.payloads.updated(4, wide.payloads(5)).updated(5, wide.payloads(4))
    val slices = wide.slices.updated(4, wide.slices(5)).updated(5, wide.slices(4))
    val entries = (swapped :+ wide.index(slices)).zipWithIndex.map { case (payload, place) =>
      (7L, place + 1L) -> Ledgers.stored(7, place + 1L, payload)
    }.toMap
    val error = intercept[LedgerLogException](keys(Seq(wide.range()), entries))
    assert(error.text.contains("100 as its first row: 80 was expected"), error.text)
    val short = wide.range().copy(entryRows = Some((0, 1000)))
    assert(intercept[LedgerLogException](keys(Seq(short), wide.stored())).text.contains("listed"))
  }

  test("whatever fails, rows that pass are returned once and in order") {
    val random = new Random(11)
    (0 until 40).foreach { round =>
      val share = Seq(0.02, 0.2, 0.9)(round % 3)
      val chosen = (0 until 50).filter(_ => random.nextDouble() < share).toSet
      val wide = rangeOf(50, chosen)
      val refusals = Seq.fill(4)(random.nextInt(12)).toSet
      val codes = Seq(FakeBookie.HangUp, FakeBookie.Refuse(101), FakeBookie.Refuse(100))
      var number = 0
      val answer = (each: FakeBookie.Asked) =>
        synchronized {
          number += 1
          if (refusals(number) && each.first != wide.indexEntryId)
            codes(random.nextInt(if (each.isSliced) 3 else 2))
          else FakeBookie.Serve
        }
      try {
        val got = keys(Seq(wide.range()), wide.stored(), answer = answer)
        assertEquals(got, got.sorted.distinct)
        assertEquals(rowsOf(chosen.toSeq.sorted).filterNot(got.contains), Nil)
      } catch {
        case error: LedgerLogException =>
          assertEquals(error.kind, LedgerLogException.EntryUnknown, error.text)
          assertEquals(found, found.sorted.distinct)
      }
    }
  }
}
