package io.ledgerlog.spark.scan

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.{Golden, LeaderRange}
import io.ledgerlog.spark.wire.{LeaderCodec, LeaderHeader}

class EntrySearchSuite extends munit.FunSuite {
  test("a search reads and finds the same entries as Python") {
    val searches = Golden.leaderEntries.get("searches").elements.asScala.toSeq
    assert(searches.size >= 50)
    searches.foreach { golden =>
      val counts = golden.get("counts").elements.asScala.map(_.asLong).toIndexedSeq
      val edges = counts.scanLeft(LeaderRange.offset)(_ + _)
      val (first, last) = (golden.get("first_entry_id").asLong, golden.get("last_entry_id").asLong)
      val isWhole = first == 0 && last == counts.size - 1
      val range = LeaderRange.ofRecords.copy(
        firstEntryId = first,
        lastEntryId = last,
        startOffset = golden.get("start_offset").asLong,
        endOffset = golden.get("end_offset").asLong,
        entryRows = Option.when(isWhole)((0L, counts.sum)),
        isSearched = true
      )
      val read = mutable.ArrayBuffer.empty[Long]
      val found = new EntrySearch(
        range,
        entryId => {
          read += entryId
          val place = entryId.toInt
          LeaderHeader(LeaderCodec.Plain, edges(place), 0, counts(place).toInt, 0)
        }
      ).needed()
      assertEquals(read.toSeq, golden.get("read").elements.asScala.map(_.asLong).toSeq)
      val span = golden.get("found").elements.asScala.map(_.asLong).toSeq
      if (span(1) < span(0)) assertEquals(found, None)
      else {
        assertEquals(found.map(each => Seq(each.firstEntryId, each.lastEntryId)), Some(span))
        val rows = Option(golden.get("rows"))
          .filterNot(_.isNull)
          .map(pair => (pair.get(0).asLong, pair.get(1).asLong))
        assertEquals(found.get.entryRows, rows)
        assert(!found.get.isSearched)
      }
    }
  }
}
