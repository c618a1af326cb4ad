package io.ledgerlog.spark.read

import java.nio.ByteBuffer
import java.util.zip.CRC32C

import scala.collection.mutable

import io.ledgerlog.spark.{FakeBookie, FakeStore, LedgerLogException, Ledgers}
import io.ledgerlog.spark.FakeBookie.{Raw, Refuse, Serve, Silence}
import io.ledgerlog.spark.plan.{BookieAddress, DigestKind, Fragment, LedgerRecord}
import io.ledgerlog.spark.wire.EntrySlices
import org.apache.arrow.memory.RootAllocator

/** Reads from bookies on real sockets, which answer as a test says. */
abstract class ReaderSuite extends munit.FunSuite {
  protected val Entries = 50
  protected val names = Seq("a", "b", "c")
  protected val fast = ReadSettings(
    batchBytes = 600,
    hedgeDelayMs = 60,
    readTimeoutMs = 400,
    reconnectDelayMs = 10,
    metadataTimeoutMs = 500,
    busyDelayMs = 1,
    busyDelayMaxMs = 5
  )

  protected def payload(id: Long): Array[Byte] = s"payload of entry $id".getBytes

  /** An entry has the header "payload", and the columns " of entry " and its number. */
  protected val slices = new EntrySlices(
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

  protected def sliced(id: Long): Array[Byte] = s"payload$id".getBytes

  protected val stored: Map[(Long, Long), Array[Byte]] =
    (0L until Entries).map(id => (7L, id) -> Ledgers.stored(7, id, payload(id))).toMap

  protected def record(ensemble: Seq[String] = names, quorum: Int = 3, last: Option[Long] = None) =
    LedgerRecord(ensemble.size, quorum, Seq(Fragment(0, ensemble)), last, DigestKind.Crc32c)

  /** A cluster of three bookies, and a reader of the entries 0 to 49 of ledger 7. */
  protected final class World(val settings: ReadSettings = fast) {
    val bookies: Map[String, FakeBookie] = names.map(_ -> new FakeBookie(stored)).toMap
    var ledger: LedgerRecord = record()
    val store = new FakeStore(Map(7L -> ledger))
    val metrics = new ReadMetrics
    var isCancelled = false

    /** So that a read that waits for ever fails its test. */
    private val deadline = System.nanoTime() + 20000000000L
    private def isLate: Boolean = System.nanoTime() > deadline
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
        () => if (isCancelled || isLate) throw new IllegalStateException("cancelled")
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

  protected def worldTest(name: String, settings: ReadSettings = fast)(body: World => Unit): Unit =
    test(name) {
      val world = new World(settings)
      try body(world)
      finally world.bookies.values.foreach(_.close())
    }

  protected val allIds = 0L until Entries

  /** Bookies are hedged early, and given up late. */
  protected val patient = fast.copy(readTimeoutMs = 60000)

  /** Small answers, so that there are many of them. */
  protected val small = fast.copy(batchBytes = 200)

  protected def frameOf(asked: FakeBookie.Asked, entry: Array[Byte]): Array[Byte] = {
    val operation = asked.operation
    val size = if (asked.isBatch) 32 + 4 + entry.length else 24 + entry.length
    val frame = ByteBuffer
      .allocate(4 + size)
      .putInt(size)
      .putInt(0x02000000 | operation << 16)
      .putInt(0)
      .putLong(asked.ledger)
      .putLong(asked.first)
    asked.id.foreach(id => frame.putLong(id).putInt(entry.length))
    frame.put(entry).array()
  }

  protected def refusalOf(asked: FakeBookie.Asked, code: Int): Array[Byte] = {
    val size = if (asked.isBatch) 32 else 24
    val frame = ByteBuffer
      .allocate(4 + size)
      .putInt(size)
      .putInt(0x02000000 | asked.operation << 16)
      .putInt(code)
      .putLong(asked.ledger)
      .putLong(asked.first)
    asked.id.foreach(frame.putLong)
    frame.array()
  }

  /** Bookies of which the last answer to a request is that of the first request.
    *
    * The first bookie is silent, so the second one gets the same request, and sends only entry 0. All
    * refuse to send the rest. Then the first bookie answers its first request too, with an entry that
    * the reader has by then.
    */
  protected final class LateAnswer(world: World, entry: Array[Byte]) {
    private var first: Option[(String, FakeBookie.Asked)] = None
    var isSent = false

    world.bookies.foreach { case (name, bookie) => bookie.answer = answer(name, _) }

    private def answer(name: String, asked: FakeBookie.Asked): FakeBookie.Answer = synchronized {
      first match {
        case None =>
          first = Some((name, asked))
          Silence
        case Some(_) if isSent => Serve
        case Some(_) if asked.first == 0 => Raw(frameOf(asked, entry))
        case Some((`name`, late)) =>
          isSent = true
          Raw(refusalOf(asked, 101) ++ frameOf(late, entry))
        case _ => Refuse(101)
      }
    }
  }
}
