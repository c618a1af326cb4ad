package io.ledgerlog.spark.read

import java.util.Random
import java.util.zip.CRC32C

import scala.collection.mutable

import io.ledgerlog.spark.{FakeBookie, FakeStore, LedgerLogException, Ledgers}
import io.ledgerlog.spark.FakeBookie.{HangUp, Raw, Refuse, Serve, Silence}
import io.ledgerlog.spark.plan.{BookieAddress, DigestKind, Fragment, LedgerRecord}
import io.ledgerlog.spark.wire.{EntrySlices, StoredSlice}
import org.apache.arrow.memory.RootAllocator

class EntryReaderSuite extends munit.FunSuite {
  private val Entries = 50
  private val names = Seq("a", "b", "c")
  private val fast = ReadSettings(
    batchBytes = 600,
    hedgeDelayMs = 60,
    readTimeoutMs = 400,
    reconnectDelayMs = 10,
    metadataTimeoutMs = 500,
    busyDelayMs = 1,
    busyDelayMaxMs = 5
  )

  private def payload(id: Long): Array[Byte] = s"payload of entry $id".getBytes

  /** An entry has the header "payload", and the columns " of entry " and its number. */
  private val slices = new EntrySlices(
    0,
    (0L until Entries).map { id =>
      Seq("payload", " of entry ", id.toString).flatMap { text =>
        val sum = new CRC32C
        sum.update(text.getBytes)
        Seq(text.length, sum.getValue.toInt)
      }.toArray
    },
    Seq(1)
  )

  private def sliced(id: Long): Array[Byte] = s"payload$id".getBytes

  private val stored: Map[(Long, Long), Array[Byte]] =
    (0L until Entries).map(id => (7L, id) -> Ledgers.stored(7, id, payload(id))).toMap

  private def record(ensemble: Seq[String] = names, quorum: Int = 3, last: Option[Long] = None) =
    LedgerRecord(ensemble.size, quorum, Seq(Fragment(0, ensemble)), last, DigestKind.Crc32c)

  /** A cluster of three bookies, and a reader of the entries 0 to 49 of ledger 7. */
  private final class World(val settings: ReadSettings = fast) {
    val bookies: Map[String, FakeBookie] = names.map(_ -> new FakeBookie(stored)).toMap
    var ledger: LedgerRecord = record()
    val store = new FakeStore(Map(7L -> ledger))
    val metrics = new ReadMetrics
    var isCancelled = false
    var takesSlices = true

    /** Whether the planner knows the addresses of the bookies. */
    var isPlanned = true

    /** The largest amount of memory of all reads. */
    var peakBytes = 0L
    val slicedIds = mutable.ArrayBuffer.empty[Long]

    def addresses: Map[String, BookieAddress] = bookies.map { case (name, bookie) =>
      name -> bookie.address.copy(takesSlices = takesSlices)
    }

    /** Read all entries, and return their ids. Neither memory nor connections are left over. */
    def read(
        parts: Seq[ReadPart] = Seq(ReadPart(0, "x", 7, 0, Entries - 1L, 40)),
        onEntry: Long => Unit = _ => ()
    ): Seq[Long] = {
      val allocator = new RootAllocator(256L << 20)
      val connections = new Bookies(
        if (isPlanned) addresses else Map.empty,
        store,
        Array.emptyByteArray,
        settings,
        allocator
      )
      val reader = new EntryReader(
        parts.iterator,
        Map(7L -> ledger),
        connections,
        store,
        settings,
        metrics,
        () => if (isCancelled) throw new IllegalStateException("cancelled")
      )
      val ids = mutable.ArrayBuffer.empty[Long]
      try {
        var entry = reader.next()
        while (entry.isDefined) {
          val bytes = new Array[Byte](entry.get.size)
          entry.get.bytes.getBytes(entry.get.place.toLong, bytes)
          val id = entry.get.entryId
          entry.get.release()
          val expected = if (entry.get.body.isDefined) sliced(id) else payload(id)
          assertEquals(new String(bytes), new String(expected))
          if (entry.get.body.isDefined) slicedIds += id
          ids += id
          onEntry(id)
          entry = reader.next()
        }
      } finally {
        reader.drop()
        connections.close()
        peakBytes = Math.max(peakBytes, allocator.getPeakMemoryAllocation)
        allocator.close()
      }
      ids.toSeq
    }

    /** Wait until the client has closed all its connections. */
    def awaitClosed(): Unit = {
      val deadline = System.nanoTime() + 5000000000L
      while (bookies.values.exists(_.openConnections > 0) && System.nanoTime() < deadline)
        Thread.onSpinWait()
      assertEquals(bookies.values.map(_.openConnections).sum, 0)
    }

    def all(answer: FakeBookie.Asked => FakeBookie.Answer): Unit =
      bookies.values.foreach(_.answer = answer)

    def failure(kind: String): LedgerLogException = {
      val error = intercept[LedgerLogException](read())
      assertEquals(error.kind, kind, error.text)
      error
    }
  }

  private def worldTest(name: String, settings: ReadSettings = fast)(body: World => Unit): Unit =
    test(name) {
      val world = new World(settings)
      try body(world)
      finally world.bookies.values.foreach(_.close())
    }

  private val allIds = 0L until Entries

  worldTest("all entries come once, in order, from several bookies") { world =>
    assertEquals(world.read(), allIds)
    assert(world.bookies.values.count(_.requests > 0) > 1)
    assertEquals(world.store.reads, 0)
    assertEquals(world.metrics.entries, 50L)
  }

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

  /** Small answers, so that there are many of them. */
  private val small = fast.copy(batchBytes = 200)

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
    val header = Seq(400, 100, 100, 100, 100)
    assert(of(header) && !of(header, 0))
  }

  worldTest("several parts are read ahead, and a part can be skipped") { world =>
    val parts = Seq(
      ReadPart(0, "x", 7, 3, 4, 40),
      ReadPart(1, "x", 7, 10, 10, 40),
      ReadPart(2, "x", 7, 20, 29, 40)
    )
    assertEquals(world.read(parts), Seq(3L, 4L, 10L) ++ (20L to 29L))
  }

  worldTest("a bookie that dies in the middle of a scan is replaced") { world =>
    assertEquals(world.read(onEntry = id => if (id == 9) world.bookies("b").close()), allIds)
  }

  worldTest("damage, refusals, hang-ups and wrong bytes lead to the next replica") { world =>
    val random = new Random(5)
    val damaged = stored.view.mapValues { bytes =>
      val copy = bytes.clone()
      copy(random.nextInt(copy.length)) = (copy.head ^ 0x40).toByte
      copy
    }.toMap
    val wrong = new FakeBookie(damaged)
    try {
      world.bookies("a").answer = asked => if (asked.first % 3 == 0) HangUp else Refuse(101)
      val others = world.bookies.updated("b", wrong)
      val store = new FakeStore(Map.empty, Map("b" -> wrong.address))
      val allocator = new RootAllocator(256L << 20)
      val addresses = others.map { case (name, bookie) => name -> bookie.address }
      val connections = new Bookies(addresses, store, Array.emptyByteArray, fast, allocator)
      val parts = Iterator(ReadPart(0, "x", 7, 0, Entries - 1L, 40))
      val reader = new EntryReader(
        parts,
        Map(7L -> world.ledger),
        connections,
        store,
        fast,
        world.metrics,
        () => ()
      )
      val ids = Iterator
        .continually(reader.next())
        .takeWhile(_.isDefined)
        .map { entry =>
          entry.get.release()
          entry.get.entryId
        }
        .toSeq
      assertEquals(ids, allIds)
      assert(world.metrics.retries > 0)
      connections.close()
      allocator.close()
    } finally wrong.close()
  }

  worldTest("a slow bookie is hedged, and a silent one is given up") { world =>
    world.bookies("a").answer = _ => Silence
    assertEquals(world.read(), allIds)
    assert(world.metrics.hedges > 0)
  }

  worldTest("without batches, each entry is requested alone") { world =>
    world.all(asked => if (asked.isBatch) Refuse(100) else Serve)
    assertEquals(world.read(), allIds)
  }

  worldTest("with striping, an entry is requested from its write set only") { world =>
    world.ledger = record(quorum = 2)
    world.bookies.zipWithIndex.foreach { case ((name, bookie), _) =>
      bookie.answer = asked =>
        if (asked.isBatch) HangUp
        else if (world.ledger.writeSet(asked.first).exists(names(_) == name)) Serve
        else Refuse(1)
    }
    assertEquals(world.read(), allIds)
    assertEquals(world.metrics.retries, 0L)
  }

  worldTest("an entry that no bookie has is lost after a look at the metadata, not before") {
    world =>
      world.all(asked =>
        if (asked.first >= 30 || asked.count + asked.first > 30) Refuse(2) else Serve
      )
      val error = world.failure(LedgerLogException.DataLoss)
      assert(error.text.contains("no bookie has them"), error.text)
      assert(error.text.contains("to 49 of ledger 7, listed by log 'x'"), error.text)
      assertEquals(world.store.reads, 1)
  }

  worldTest("a ledger that was closed below the listed end has lost entries") { world =>
    world.store.ledgers = Map(7L -> record(last = Some(19)))
    world.all(asked => if (asked.first + asked.count > 20) Refuse(2) else Serve)
    assert(world.failure(LedgerLogException.DataLoss).text.contains("closed at entry 19"))
  }

  worldTest("a deleted ledger has lost entries") { world =>
    world.store.ledgers = Map.empty
    world.all(_ => Refuse(1))
    assert(world.failure(LedgerLogException.DataLoss).text.contains("the ledger does not exist"))
  }

  worldTest("an entry is not lost while a bookie does not answer") { world =>
    world.all(_ => Refuse(2))
    world.bookies("c").close()
    val error = world.failure(LedgerLogException.EntryUnknown)
    assert(error.text.contains("c: unavailable"), error.text)
  }

  worldTest("damage on all replicas is not loss") { world =>
    val garbage = Ledgers.stored(8, 0, payload(0))
    world.all { asked =>
      if (asked.isBatch) Refuse(101) else Raw(frameOf(asked, garbage))
    }
    world.failure(LedgerLogException.DigestMismatch): Unit
  }

  worldTest("busy bookies are asked again later") { world =>
    val refusals = mutable.Map.empty[Long, Int].withDefaultValue(0)
    world.all { asked =>
      refusals.synchronized {
        refusals(asked.first) += 1
        if (refusals(asked.first) <= 8) Refuse(106) else Serve
      }
    }
    assertEquals(world.read(), allIds)
  }

  worldTest("a moved ensemble is found by the metadata") { world =>
    world.ledger = record(Seq("d", "e", "f"))
    world.store.bookies = world.bookies.map { case (name, bookie) => name -> bookie.address }
    assertEquals(world.read(), allIds)
    assert(world.store.reads > 0)
  }

  worldTest("a bookie with a new address is found by its registration") { world =>
    val moved = new FakeBookie(stored)
    try {
      world.ledger = record(Seq("d"), quorum = 1)
      world.store.ledgers = Map(7L -> world.ledger)
      world.store.bookies = Map("d" -> moved.address)
      assertEquals(world.read(), allIds)
    } finally moved.close()
  }

  worldTest("a cancelled task closes its sockets") { world =>
    world.all(asked => if (asked.first > 20) Silence else Serve)
    intercept[IllegalStateException](
      world.read(onEntry = id => if (id == 5) world.isCancelled = true)
    )
    world.awaitClosed()
  }

  worldTest("answers of random bytes never do more than fail over") { world =>
    val random = new Random(17)
    def garbage(asked: FakeBookie.Asked): Array[Byte] = random.synchronized {
      val bytes = frameOf(asked, stored((7L, asked.first)))
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
    assertEquals(world.read(), allIds)
  }

  private def frameOf(asked: FakeBookie.Asked, entry: Array[Byte]): Array[Byte] = {
    val operation = asked.operation
    val size = if (asked.isBatch) 32 + 4 + entry.length else 24 + entry.length
    val frame = java.nio.ByteBuffer
      .allocate(4 + size)
      .putInt(size)
      .putInt(0x02000000 | operation << 16)
      .putInt(0)
      .putLong(asked.ledger)
      .putLong(asked.first)
    asked.id.foreach(id => frame.putLong(id).putInt(entry.length))
    frame.put(entry).array()
  }
}
