package io.ledgerlog.spark.read

import java.util.Random

import scala.collection.mutable

import io.ledgerlog.spark.{FakeBookie, LedgerLogException}
import io.ledgerlog.spark.FakeBookie.{HangUp, Raw, Refuse, Serve, Silence}
import io.ledgerlog.spark.plan.DigestKind
import io.ledgerlog.spark.wire.{EntrySlices, StoredSlice}

class SliceReaderSuite extends ReaderSuite {
  private val slicedPart = Seq(ReadPart(0, "x", 7, 0, Entries - 1L, 40, Some(slices)))

  worldTest("slices come once, in order, without whole entries") { world =>
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, allIds)
    assertEquals(world.metrics.bytes, allIds.map(sliced(_).length.toLong).sum)
    assertEquals(world.metrics.slicesGivenUp, 0L)
    val one = Seq(ReadPart(0, "x", 7, 9, 9, 40, Some(slices)))
    assertEquals(world.read(one), Seq(9L))
    assertEquals(world.slicedIds.size, 51)
  }

  worldTest("damaged slices come from the next replica") { world =>
    def damaged(asked: FakeBookie.Asked): FakeBookie.Answer =
      Raw(frameOf(asked, "payload7".getBytes))
    world.bookies("a").answer = damaged
    world.bookies("c").answer = asked => if (asked.first % 2 == 0) HangUp else damaged(asked)
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, allIds)
  }

  worldTest("slices that all replicas have damaged are read whole, and the others as slices") {
    world =>
      world.all { asked =>
        if (asked.isSliced && asked.first < 5) Raw(frameOf(asked, "payload".getBytes)) else Serve
      }
      assertEquals(world.read(slicedPart), allIds)
      assert(world.slicedIds.head >= 5, world.slicedIds)
      assertEquals(world.metrics.slicesGivenUp, 1L)
      assertEquals(world.slicedIds.last, Entries - 1L)
  }

  worldTest("with a wrong index, whole entries take the memory of one answer", small) { world =>
    val asked = mutable.Buffer.empty[FakeBookie.Asked]
    world.all { each =>
      asked.synchronized(asked += each)
      if (each.isSliced) Raw(frameOf(each, new Array[Byte](9))) else Serve
    }
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, Nil)
    // All requests for slices together: the first of each job, and a few rounds of the first job.
    assert(asked.count(_.isSliced) < 40, asked.count(_.isSliced))
    assert(world.peakBytes <= 2048, world.peakBytes)
  }

  worldTest("a bookie that sends more than was requested takes no memory") { world =>
    val large = new Array[Byte](4 << 20)
    Seq("a", "b").foreach { name =>
      world.bookies(name).answer =
        asked => if (asked.isSliced) Raw(frameOf(asked, large)) else Serve
    }
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, allIds)
    assert(world.peakBytes < (1 << 20), world.peakBytes)
  }

  worldTest("bookies that refuse slices send whole entries") { world =>
    world.all(asked => if (asked.isSliced) Refuse(100) else Serve)
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, Nil)
    assertEquals(world.metrics.entries, 50L)
  }

  worldTest("bookies without slices in their registration get no requests for slices") { world =>
    world.takesSlices = false
    world.all(asked => if (asked.isSliced) HangUp else Serve)
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, Nil)
    assertEquals(world.metrics.retries, 0L)
    // The registrations are read by the task.
    world.store.bookies = world.addresses
    world.isPlanned = false
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, Nil)
  }

  worldTest("one bookie with slices is enough") { world =>
    Seq("a", "b").foreach { name =>
      world.bookies(name).answer = asked => if (asked.isSliced) Refuse(100) else Serve
    }
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, allIds)
  }

  worldTest("slices of a slow bookie are hedged, and a silent one is given up", small) { world =>
    world.bookies("a").answer = _ => Silence
    world.bookies("b").answer = asked => if (asked.isSliced) HangUp else Serve
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, allIds)
    assert(world.metrics.hedges > 0)
  }

  worldTest("slices are requested on after the late answer of a slow bookie", patient) { world =>
    val script = new LateAnswer(world, sliced(0))
    assertEquals(world.read(slicedPart.map(_.copy(lastEntryId = 4))), 0L to 4L)
    assert(script.isSent)
    assertEquals(world.slicedIds.head, 0L)
    assertEquals(world.metrics.slicesGivenUp, 1L)
  }

  worldTest("without any answer to requests for slices, whole entries are read") { world =>
    world.bookies("a").answer = asked => if (asked.isSliced) Silence else Serve
    world.bookies("b").answer = asked => if (asked.isSliced) HangUp else Serve
    world.bookies("c").answer = asked => if (asked.isSliced) Refuse(101) else Serve
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, Nil)
  }

  worldTest("busy bookies are asked for slices again, and not for whole entries") { world =>
    val refusals = mutable.Map.empty[Long, Int].withDefaultValue(0)
    world.all { asked =>
      refusals.synchronized {
        refusals(asked.first) += 1
        if (refusals(asked.first) <= 8) Refuse(106) else Serve
      }
    }
    assertEquals(world.read(slicedPart), allIds)
    assertEquals(world.slicedIds.toSeq, allIds)
  }

  worldTest("random bytes instead of slices never do more than fail over") { world =>
    val random = new Random(19)
    def garbage(asked: FakeBookie.Asked): Array[Byte] = random.synchronized {
      val bytes =
        frameOf(asked, if (asked.isSliced) sliced(asked.first) else stored((7L, asked.first)))
      random.nextInt(4) match {
        case 0 => random.nextBytes(bytes)
        case 1 => bytes(random.nextInt(bytes.length)) = random.nextInt().toByte
        case 2 => Array[Byte](127, -1, -1, -1).copyToArray(bytes): Unit
        case _ => bytes(4 + random.nextInt(20)) = random.nextInt().toByte
      }
      bytes
    }
    world.bookies("a").answer = asked => Raw(garbage(asked))
    world.bookies("b").answer = asked => Raw(garbage(asked))
    assertEquals(world.read(slicedPart), allIds)
  }

  worldTest("a cancelled task of slices closes its sockets", small) { world =>
    world.all(asked => if (asked.first > 20) Silence else Serve)
    intercept[IllegalStateException](
      world.read(slicedPart, onEntry = id => if (id == 5) world.isCancelled = true)
    )
    world.awaitClosed()
  }

  worldTest("HMAC ledgers are read in whole entries") { world =>
    world.ledger = record().copy(digest = DigestKind.Hmac)
    world.store.ledgers = Map(7L -> world.ledger)
    @volatile var isSliced = false
    world.all { asked =>
      if (asked.isSliced) isSliced = true
      Serve
    }
    // The stored entries have another digest.
    val error = intercept[LedgerLogException](world.read(slicedPart))
    assertEquals(error.kind, LedgerLogException.DigestMismatch)
    assert(!isSliced)
  }

  worldTest("an entry whose slices no bookie has is lost as a whole one is") { world =>
    world.all(asked => if (asked.first + asked.count > 30) Refuse(2) else Serve)
    val error = intercept[LedgerLogException](world.read(slicedPart))
    assertEquals(error.kind, LedgerLogException.DataLoss)
    assertEquals(world.store.reads, 1)
  }

  worldTest("striped ledgers are read in whole entries") { world =>
    world.ledger = record(quorum = 2)
    world.all(asked => if (asked.isBatch) HangUp else Serve)
    assertEquals(world.read(slicedPart), allIds)
  }

  test("the ranges of an entry are its header and the columns, joined if they touch") {
    assertEquals(slices.rangesOf(12), IndexedSeq(StoredSlice(0, 7), StoredSlice(17, 2)))
    val lengths = Array(7, 0, 10, 0, 0, 0, 2, 0, 5, 0)
    def of(columns: Int*): Seq[StoredSlice] =
      new EntrySlices(3, IndexedSeq(lengths), columns).rangesOf(3)
    assertEquals(of(0), Seq(StoredSlice(0, 17)))
    assertEquals(of(1, 2), Seq(StoredSlice(0, 7), StoredSlice(17, 2)))
    assertEquals(of(2, 3, 0), Seq(StoredSlice(0, 24)))
    assertEquals(of(), Seq(StoredSlice(0, 7)))
  }

  test("slices are worthwhile if they have less than three fifths of the bytes") {
    def of(lengths: Seq[Int], columns: Int*): Boolean =
      new EntrySlices(0, IndexedSeq(lengths.flatMap(Seq(_, 0)).toArray), columns).isWorthwhile
    val lengths = Seq(0, 100, 100, 100, 100)
    assert(of(lengths, 0) && of(lengths, 0, 3))
    assert(!of(lengths, 0, 1, 2))
    val many = 1 +: Seq.fill(3 * EntrySlices.RangesMax)(1)
    assert(of(many, 1 until EntrySlices.RangesMax: _*))
    assert(!of(many, 1 to EntrySlices.RangesMax: _*))
    val header = Seq(400, 100, 100, 100, 100)
    assert(of(header) && !of(header, 0))
  }
}
