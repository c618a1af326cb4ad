package io.ledgerlog.spark.scan

import scala.collection.mutable

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.arrow.{EntryMessage, EntryRows}
import io.ledgerlog.spark.plan.ScanRange
import io.ledgerlog.spark.read.{EntryReader, ReadMetrics, ReadPart, Received}
import org.apache.arrow.memory.BufferAllocator
import org.slf4j.LoggerFactory

/** The entries of a task's ranges that may have a row of the query, in order.
  *
  * If this saves time, the columns of the filter are read first, for groups of entries. After that,
  * the columns that the scan needs are read, but only for entries with a row that may pass. While
  * the entries of one group are read, the filter's columns of the next group are already requested.
  * Between the two reads of an entry, none of its bytes are in memory.
  *
  * @param newReader
  *   makes the reader of the task
  * @param mayPass
  *   whether a row of an entry may pass the filter, by the filter's columns
  * @param groupBytes
  *   maximum size of the filter's columns in one group; one entry may always be a group
  */
final class WantedEntries(
    reads: IndexedSeq[RangeRead],
    newReader: Iterator[ReadPart] => EntryReader,
    allocator: BufferAllocator,
    mayPass: (ScanRange, EntryMessage, Int, Int) => Boolean,
    groupBytes: Long,
    failOnDataLoss: Boolean,
    metrics: ReadMetrics
) {
  import WantedEntries._

  private val states = reads.zipWithIndex.map { case (read, place) => new RangeState(read, place) }

  /** Stages that the reader has not taken, and stages that it has, both in the order of entries. */
  private val ready = mutable.Queue.empty[Stage]
  private val taken = mutable.Queue.empty[Stage]
  private val reader = newReader(Parts)

  /** The index of the first range with entries that have no stage yet. */
  private var place = 0
  private var judged = 0L
  private var passed = 0L
  private var isAtEnd = false

  /** The next entry, or None after the last one. */
  def next(): Option[WantedEntry] = {
    var found: Option[WantedEntry] = None
    while (found.isEmpty && !isAtEnd) found = advance()
    found
  }

  /** Read nothing more. */
  def drop(): Unit = reader.drop()

  // What is read: stages become the parts of the reader, when it asks for them.

  private object Parts extends Iterator[ReadPart] {
    override def hasNext: Boolean = {
      if (ready.isEmpty) begin()
      ready.nonEmpty
    }

    override def next(): ReadPart = {
      val stage = ready.dequeue()
      taken.enqueue(stage)
      partOf(stage)
    }
  }

  /** Make the next stage, unless it depends on filter columns that were not received yet. */
  private def begin(): Unit = if (place < states.size) {
    val state = states(place)
    val ahead = taken.iterator.filter(_.kind == Filter).map(_.entries).sum
    nextGroup(state) match {
      case Some(group) =>
        if (ahead == 0 || ahead + group.entries <= AheadMax) {
          ready.enqueue(group)
          goOn(state, group.lastEntryId + 1)
        }
      case None =>
        // If groups are outstanding, the entries that they choose come before those of this stage.
        if (ahead == 0) {
          ready.enqueue(new Stage(state, All, state.nextEntryId, state.range.lastEntryId))
          goOn(state, state.range.lastEntryId + 1)
        }
    }
  }

  private def goOn(state: RangeState, nextEntryId: Long): Unit = {
    state.nextEntryId = nextEntryId
    if (nextEntryId > state.range.lastEntryId) place = Math.max(place, state.place + 1)
  }

  /** The next group of entries whose filter columns are read before their other columns, if any. */
  private def nextGroup(state: RangeState): Option[Stage] =
    state.read.filter.filter(_ => !state.isWhole && !isUseless).flatMap { slices =>
      val most = Math.min(state.range.lastEntryId, state.nextEntryId + EntriesMax - 1)
      var size = 0L
      val last = (state.nextEntryId to most).takeWhile { entryId =>
        size += slices.sizeOf(entryId)
        entryId == state.nextEntryId || size <= groupBytes
      }.last
      Some(new Stage(state, Filter, state.nextEntryId, last))
        .filter(stage => reader.takesSlices(partOf(stage)))
    }

  /** Whether one read of each entry is better, because most entries have a row that may pass. */
  private def isUseless: Boolean = judged >= EntriesMax && passed * 4 > judged * 3

  private def partOf(stage: Stage): ReadPart = {
    val (read, range) = (stage.state.read, stage.state.range)
    ReadPart(
      stage.state.place,
      range.log,
      range.ledgerId,
      stage.firstEntryId,
      stage.lastEntryId,
      range.sizeBytes / range.entries + 1,
      if (stage.kind == Filter) read.filter else read.slices,
      isSecond = stage.kind == Chosen
    )
  }

  // What was received.

  private def advance(): Option[WantedEntry] =
    received().flatMap { entry =>
      if (taken.head.kind == Filter) {
        judge(taken.head, entry)
        None
      } else accept(taken.head, entry)
    }

  private def received(): Option[Received] =
    try {
      val entry = reader.next()
      if (entry.isEmpty)
        if (taken.isEmpty) isAtEnd = true
        else throw wrong(taken.head, "no entry", "comes")
      entry
    } catch {
      case error: LedgerLogException if taken.headOption.exists(_.kind == Filter) =>
        readRest(taken.head, error)
        None
      case error: LedgerLogException if error.kind == LedgerLogException.DataLoss =>
        skipRange(taken.head.state, error)
        None
    }

  /** Choose an entry, or leave it out, by the filter's columns. */
  private def judge(stage: Stage, entry: Received): Unit = {
    val state = stage.state
    val isJudged =
      try {
        val rows = decoded(stage, entry)
        try choose(state, entry, rows)
        finally rows.close()
        true
      } catch {
        case error: LedgerLogException =>
          readRest(stage, error)
          false
      } finally entry.release()
    if (isJudged) {
      stage.nextEntryId += 1
      if (stage.isDone) {
        taken.dequeue(): Unit
        enqueueChosen(state, state.chosen.iterator.filter(_.entryId >= stage.firstEntryId))
      }
      state.finishAfter(entry.entryId)
    }
  }

  private def choose(state: RangeState, entry: Received, rows: EntryRows): Unit = {
    val (from, until) = state.cutter.take(entry.entryId, rows.firstRow, rows.message.rows)
    // Without slices, each entry would be read twice.
    if (entry.body.isEmpty) state.isWhole = true
    judged += 1
    if (from < until && passes(state.range, rows.message, from, until)) {
      passed += 1
      state.chosen += ChosenEntry(entry.entryId, rows.firstRow, rows.message.rows, from, until)
    } else metrics.filtered += 1
  }

  private def passes(range: ScanRange, message: EntryMessage, from: Int, until: Int): Boolean =
    try mayPass(range, message, from, until)
    catch {
      case _: LedgerLogException => true // the second read decides if the entry is damaged
    }

  private def enqueueChosen(state: RangeState, chosen: Iterator[ChosenEntry]): Unit = {
    val runs = mutable.ArrayBuffer.empty[(Long, Long)]
    chosen.map(_.entryId).foreach { entryId =>
      if (runs.lastOption.exists(_._2 == entryId - 1)) runs(runs.size - 1) = (runs.last._1, entryId)
      else runs += ((entryId, entryId))
    }
    runs.foreach { case (first, last) => ready.enqueue(new Stage(state, Chosen, first, last)) }
  }

  /** Return the wanted rows of an entry, after all wanted columns of the entry were read. */
  private def accept(stage: Stage, entry: Received): Option[WantedEntry] = {
    val state = stage.state
    var rows: Option[EntryRows] = None
    var isWanted = false
    try {
      val found = decoded(stage, entry)
      rows = Some(found)
      val (from, until) =
        if (stage.kind == Chosen) rowsOf(stage, found)
        else state.cutter.take(entry.entryId, found.firstRow, found.message.rows)
      stage.nextEntryId += 1
      if (stage.isDone) taken.dequeue(): Unit
      if (stage.kind == All) state.finishAfter(entry.entryId)
      isWanted = from < until
      if (isWanted) Some(WantedEntry(state.range, entry, found, from, until)) else None
    } finally
      if (!isWanted) {
        rows.foreach(_.close())
        entry.release()
      }
  }

  private def rowsOf(stage: Stage, found: EntryRows): (Int, Int) = {
    val chosen = stage.state.chosen.dequeue()
    val isSame = chosen.entryId == stage.nextEntryId && chosen.firstRow == found.firstRow &&
      chosen.rows == found.message.rows
    if (!isSame) throw wrong(stage, s"entry ${chosen.entryId}", "has other rows than its slices")
    (chosen.from, chosen.until)
  }

  private def decoded(stage: Stage, entry: Received): EntryRows = {
    if (entry.entryId != stage.nextEntryId) throw wrong(stage, s"entry ${entry.entryId}", "came")
    EntryRows
      .decode(stage.state.range, entry.bytes, entry.place, entry.size, entry.body, allocator)
  }

  private def wrong(stage: Stage, what: String, does: String): LedgerLogException =
    LedgerLogException.wireFormat(
      s"ledger ${stage.state.range.ledgerId}: $what $does, where entry ${stage.nextEntryId} was " +
        "to come"
    )

  // What could not be read.

  /** Read the rest of a range whole, from the entry whose filter columns could not be read.
    *
    * If the entry is lost, this read reports the loss after the rows before the entry are returned.
    */
  private def readRest(stage: Stage, error: LedgerLogException): Unit = {
    val state = stage.state
    Log.warn("the columns of a filter were not read before the others: {}", error.text)
    forget(state)
    enqueueChosen(state, state.chosen.iterator)
    ready.enqueue(new Stage(state, All, stage.nextEntryId, state.range.lastEntryId))
  }

  private def skipRange(state: RangeState, error: LedgerLogException): Unit = {
    if (failOnDataLoss)
      throw new LedgerLogException(
        error.kind,
        s"""${error.text}. Some rows may have been lost. Set the option "failOnDataLoss" to """ +
          """"false" to read on without them.""",
        error
      )
    Log.warn("rows skipped by failOnDataLoss=false: {}", error.text)
    forget(state)
    state.chosen.clear()
  }

  /** Drop all stages of a range. */
  private def forget(state: RangeState): Unit = {
    reader.skip(state.place)
    Seq(ready, taken).foreach(_.filterInPlace(_.state != state))
    goOn(state, state.range.lastEntryId + 1)
  }
}

private object WantedEntries {
  val Log = LoggerFactory.getLogger(classOf[WantedEntries])

  /** Maximum number of entries in a group. After so many entries, `isUseless` can be decided. */
  val EntriesMax = 16

  /** Maximum number of entries in all groups whose filter columns are requested. */
  val AheadMax: Long = 2L * EntriesMax

  sealed trait Kind

  /** Consecutive entries of a range, which are read once. */
  case object All extends Kind

  /** The filter's columns of a group. */
  case object Filter extends Kind

  /** Consecutive entries that the filter's columns have chosen. */
  case object Chosen extends Kind

  /** Entries that are read together, both ends inclusive. */
  final class Stage(
      val state: RangeState,
      val kind: Kind,
      val firstEntryId: Long,
      val lastEntryId: Long
  ) {
    var nextEntryId: Long = firstEntryId

    def entries: Long = lastEntryId - firstEntryId + 1
    def isDone: Boolean = nextEntryId > lastEntryId
  }

  /** An entry to read again, and its wanted rows, half-open. */
  final case class ChosenEntry(entryId: Long, firstRow: Long, rows: Int, from: Int, until: Int)

  final class RangeState(val read: RangeRead, val place: Int) {
    val range: ScanRange = read.range
    val cutter = new RowCutter(range)

    /** The chosen entries that were not returned yet. */
    val chosen: mutable.Queue[ChosenEntry] = mutable.Queue.empty

    /** The first entry that no stage has read or will read. */
    var nextEntryId: Long = range.firstEntryId

    /** Whether the rest is read once, because an entry came whole. */
    var isWhole = false

    /** Check the number of rows, if this is the last entry of the range. */
    def finishAfter(entryId: Long): Unit = if (entryId == range.lastEntryId) cutter.finish()
  }
}
