package io.ledgerlog.spark.scan

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.arrow.{EntryColumns, EntryMessage, EntryRows, RangeIndex}
import io.ledgerlog.spark.plan.{ColumnOrigin, ScanRange}
import io.ledgerlog.spark.read.{
  Bookies,
  EntryReader,
  LedgerStore,
  ReadMetrics,
  ReadPart,
  ReadSettings,
  Received,
  ZooKeeperStore
}
import io.ledgerlog.spark.wire.{EntrySlices, LeaderHeader}
import org.apache.arrow.memory.BufferAllocator
import org.apache.spark.{TaskContext, TaskKilledException}
import org.apache.spark.sql.connector.metric.CustomTaskMetric
import org.apache.spark.sql.connector.read.PartitionReader
import org.apache.spark.sql.vectorized.ColumnarBatch
import org.slf4j.LoggerFactory

/** Reads the rows of one task: one batch of columns for each entry. */
final class LedgerPartitionReader(
    partition: LedgerPartition,
    settings: ReadSettings,
    store: LedgerStore,
    allocator: BufferAllocator,
    checkCancelled: () => Unit
) extends PartitionReader[ColumnarBatch] {
  private val metrics = new ReadMetrics
  private val bookies =
    new Bookies(partition.bookies, store, partition.password, settings, allocator)
  private val columns = partition.schemas.map { stored =>
    (stored.log, stored.schemaId) -> new EntryColumns(stored, partition.target, allocator)
  }.toMap

  /** For the schemas of which the scan needs only some columns: their places. */
  private val pruned = partition.schemas.flatMap { stored =>
    val places = stored.origins.collect { case ColumnOrigin.Stored(place) => place }.distinct
    val isPruned = places.size < columns((stored.log, stored.schemaId)).storedColumns
    if (isPruned) Some((stored.log, stored.schemaId) -> places) else None
  }.toMap

  private var ranges: IndexedSeq[ScanRange] = IndexedSeq.empty
  private var reader: Option[EntryReader] = None
  private var place = 0
  private var nextEntryId = 0L
  private var cutter: Option[RowCutter] = None
  private var batch: Option[ColumnarBatch] = None
  private var rowsLeft = partition.limit.getOrElse(Long.MaxValue)
  private var isClosed = false

  override def next(): Boolean = {
    closeBatch()
    if (reader.isEmpty) begin()
    while (batch.isEmpty && rowsLeft > 0 && place < ranges.size) advance()
    batch.isDefined
  }

  override def get(): ColumnarBatch = batch.get

  override def currentMetricsValues(): Array[CustomTaskMetric] = ScanMetrics.valuesOf(metrics)

  override def close(): Unit = if (!isClosed) {
    isClosed = true
    closeBatch()
    reader.foreach(_.drop())
    bookies.close()
    store.close()
    allocator.close()
  }

  private def begin(): Unit = {
    val indexes = readIndexes()
    ranges = narrowed(indexes).toIndexedSeq
    reader = Some(readerOf(ranges.iterator.zipWithIndex.map { case (range, number) =>
      partOf(number, range, range.firstEntryId, range.lastEntryId)
        .copy(slices = slicesOf(range, indexes))
    }))
    startRange()
  }

  private def readerOf(parts: Iterator[ReadPart]): EntryReader =
    new EntryReader(parts, partition.ledgers, bookies, store, settings, metrics, checkCancelled)

  private def partOf(number: Int, range: ScanRange, first: Long, last: Long): ReadPart =
    ReadPart(number, range.log, range.ledgerId, first, last, range.sizeBytes / range.entries + 1)

  private def startRange(): Unit = if (place < ranges.size) {
    cutter = Some(new RowCutter(ranges(place)))
    nextEntryId = ranges(place).firstEntryId
  }

  /** Read and convert the next entry. Its batch stays empty if no row of the entry is wanted. */
  private def advance(): Unit = {
    val range = ranges(place)
    try {
      val entry = reader.get
        .next()
        .getOrElse(
          throw LedgerLogException.wireFormat(s"ledger ${range.ledgerId}: no entry $nextEntryId")
        )
      try {
        if (entry.entryId != nextEntryId)
          throw LedgerLogException.wireFormat(
            s"ledger ${range.ledgerId}: entry $nextEntryId was to come, ${entry.entryId} came"
          )
        convert(range, entry)
      } finally entry.release()
      nextEntryId += 1
      if (nextEntryId > range.lastEntryId) {
        cutter.get.finish()
        place += 1
        startRange()
      }
    } catch {
      case error: LedgerLogException if error.kind == LedgerLogException.DataLoss =>
        skipRange(error)
    }
  }

  private def convert(range: ScanRange, entry: Received): Unit = {
    val found =
      EntryRows.decode(range, entry.bytes, entry.place, entry.size, entry.body, allocator)
    try {
      val (from, until) = cutter.get.take(nextEntryId, found.firstRow, found.message.rows)
      val end = from + Math.min((until - from).toLong, rowsLeft).toInt
      if (from < end) {
        val firstOffset = range.rangeOffset + found.firstRow
        batch = Some(
          columns((range.log, range.schemaId))
            .batch(found.message, found.timed(range), nextEntryId, firstOffset, from, end)
        )
        rowsLeft -= end - from
      }
    } finally found.close()
  }

  private def skipRange(error: LedgerLogException): Unit = {
    if (partition.failOnDataLoss)
      throw new LedgerLogException(
        error.kind,
        s"""${error.text}. Some rows may have been lost. Set the option "failOnDataLoss" to """ +
          """"false" to read on without them.""",
        error
      )
    LedgerPartitionReader.Log.warn("rows skipped by failOnDataLoss=false: {}", error.text)
    reader.get.skip(place)
    place += 1
    startRange()
  }

  /** The ranges without the entries that are known to have no wanted row.
    *
    * An index only avoids work. If it is lost, its range is read whole.
    */
  private def narrowed(indexes: Map[(Long, Long), RangeIndex]): Seq[ScanRange] =
    partition.ranges.flatMap { range =>
      indexes.get((range.ledgerId, range.indexEntryId)) match {
        case Some(index) if range.hasIndex => index.needed(range)
        case _ if range.isSearched => searched(range)
        case _ => Some(range)
      }
    }

  /** The part of a leader log's range with wanted rows. If an entry is lost, the range is read. */
  private def searched(range: ScanRange): Option[ScanRange] =
    try new EntrySearch(range, headerOf(range, _)).needed()
    catch {
      case error: LedgerLogException if error.kind == LedgerLogException.DataLoss =>
        LedgerPartitionReader.Log
          .warn("an entry is lost, its range is read whole: {}", error.text)
        Some(range)
    }

  private def headerOf(range: ScanRange, entryId: Long): LeaderHeader = {
    val entries = readerOf(Iterator(partOf(0, range, entryId, entryId)))
    try {
      val entry = entries.next().get
      try EntryRows.headerOf(entry.bytes, entry.place, entry.size)
      finally entry.release()
    } finally entries.drop()
  }

  /** The slices of a range of which few columns are needed, if its index lists them. */
  private def slicesOf(
      range: ScanRange,
      indexes: Map[(Long, Long), RangeIndex]
  ): Option[EntrySlices] =
    for {
      places <- pruned.get((range.log, range.schemaId))
      index <- indexes.get((range.ledgerId, range.slicesEntryId))
      slices <- index.slicesOf(range, places, columns((range.log, range.schemaId)).storedColumns)
    } yield slices

  /** The index entry to read before the range, if there is one. */
  private def indexEntryOf(range: ScanRange): Option[Long] =
    if (range.hasIndex) Some(range.indexEntryId)
    else Some(range.slicesEntryId).filter(_ != ScanRange.NoEntry)

  private def readIndexes(): Map[(Long, Long), RangeIndex] = {
    val wanted = partition.ranges
      .flatMap(range => indexEntryOf(range).map(range -> _))
      .distinctBy { case (range, entryId) => (range.ledgerId, entryId) }
      .toIndexedSeq
    if (wanted.isEmpty) Map.empty else readIndexes(wanted)
  }

  private def readIndexes(
      wanted: IndexedSeq[(ScanRange, Long)]
  ): Map[(Long, Long), RangeIndex] = {
    val entries = readerOf(wanted.iterator.zipWithIndex.map { case ((range, entryId), number) =>
      partOf(number, range, entryId, entryId)
    })
    try
      wanted.zipWithIndex.flatMap { case ((range, entryId), number) =>
        try {
          val entry = entries.next().get
          try {
            val text = EntryMessage
              .decode(entry.bytes, entry.place, entry.size)
              .index
              .getOrElse(
                throw LedgerLogException.wireFormat(
                  s"entry $entryId of ledger ${range.ledgerId} is not the index that " +
                    s"log '${range.log}' lists"
                )
              )
            Some((range.ledgerId, entryId) -> RangeIndex.decode(entryId, text))
          } finally entry.release()
        } catch {
          // Without `hasIndex`, the whole range is wanted anyway.
          case error: LedgerLogException
              if error.kind == LedgerLogException.DataLoss || !range.hasIndex =>
            LedgerPartitionReader.Log
              .warn("no usable index entry, its range is read whole: {}", error.text)
            entries.skip(number)
            None
        }
      }.toMap
    finally entries.drop()
  }

  private def closeBatch(): Unit = {
    batch.foreach(_.close())
    batch = None
  }
}

object LedgerPartitionReader {
  private val Log = LoggerFactory.getLogger(classOf[LedgerPartitionReader])

  /** The reader of a task of Spark. It is closed at the end of the task, whatever ends it. */
  def of(partition: LedgerPartition, settings: ReadSettings): LedgerPartitionReader = {
    val context = Option(TaskContext.get())
    def checkCancelled(): Unit =
      if (context.exists(_.isInterrupted())) throw new TaskKilledException("the scan is not needed")
    val reader = new LedgerPartitionReader(
      partition,
      settings,
      new ZooKeeperStore(partition.service, settings),
      Allocators.forTask(s"ledgerlog task ${context.fold(-1L)(_.taskAttemptId())}"),
      () => checkCancelled()
    )
    context.foreach(_.addTaskCompletionListener[Unit](_ => reader.close()))
    reader
  }
}
