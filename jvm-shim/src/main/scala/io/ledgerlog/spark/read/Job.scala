package io.ledgerlog.spark.read

import scala.collection.mutable

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.wire.{Code, EntrySlices}

/** Consecutive entries of one part and one fragment that are requested together.
  *
  * The entries come from one bookie. After a refusal, damage or a time-out, the next bookie gets a
  * request for the rest. If no bookie sent the rest, and it was a request for slices, the rest is
  * requested as whole entries. If no bookie sent these either, the first missing entry is requested
  * alone from each bookie of its write set: only such answers show that an entry is absent.
  *
  * @param slices
  *   the parts of the entries to read, if not whole entries
  * @param expected
  *   the expected bytes of all answers
  */
final class Job(
    val part: ReadPart,
    firstEntryId: Long,
    val lastEntryId: Long,
    val slices: Option[EntrySlices],
    val expected: Long
) {
  val entries: mutable.Queue[Received] = mutable.Queue.empty
  val outstanding: mutable.LinkedHashSet[Request] = mutable.LinkedHashSet.empty
  val codes: mutable.LinkedHashMap[Int, Code] = mutable.LinkedHashMap.empty

  var nextEntryId: Long = firstEntryId
  var order: IndexedSeq[Int] = IndexedSeq.empty
  var tried: Int = 0
  var mode: ReadMode = ReadMode.Single

  /** Whether no bookie sent the rest. When the job is the first one, the reader decides. */
  var isHopeless: Boolean = false
  var isDropped: Boolean = false
  var isConfirmed: Boolean = false
  var reloads: Int = 0
  var busyRounds: Int = 0
  var resumeNanos: Option[Long] = None

  /** Why the entries cannot be requested. It is thrown only when the job is the first one. */
  var failure: Option[LedgerLogException] = None

  def isReceived: Boolean = nextEntryId > lastEntryId

  /** Keep the next missing entries and release the others. Returns whether any was kept. */
  def take(received: Seq[Received]): Boolean = {
    var took = false
    received.foreach { entry =>
      if (!isDropped && entry.entryId == nextEntryId && !isReceived) {
        entries.enqueue(entry)
        nextEntryId += 1
        took = true
      } else entry.release()
    }
    took
  }

  /** Begin again with the first missing entry: all bookies may be asked. */
  def restart(bookies: IndexedSeq[Int], as: ReadMode): Unit = {
    order = bookies
    tried = 0
    mode = as
    isHopeless = bookies.isEmpty
    codes.clear()
  }

  def drop(): Unit = {
    isDropped = true
    entries.foreach(_.release())
    entries.clear()
  }
}
