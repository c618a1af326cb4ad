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

  /** For each schema, the places of the columns that the scan needs. */
  private val wanted = partition.schemas.map { stored =>
    val places = stored.origins.collect { case ColumnOrigin.Stored(place) => place }.distinct
    (stored.log, stored.schemaId) -> places
  }.toMap

  /** The filters that need only some of these columns. A scan with a limit has no filter. */
  private val filters = partition.schemas.flatMap { stored =>
    val key = (stored.log, stored.schemaId)
    stored.filter
      .filter(filter => partition.limit.isEmpty && !wanted(key).forall(filter.places))
      .map(key -> _)
  }.toMap

  private var entries: Option[WantedEntries] = None
  private var batch: Option[ColumnarBatch] = None
  private var rowsLeft = partition.limit.getOrElse(Long.MaxValue)
  private var isClosed = false

  override def next(): Boolean = {
    closeBatch()
    if (entries.isEmpty) begin()
    if (rowsLeft > 0) entries.get.next().foreach(convert)
    batch.isDefined
  }

  override def get(): ColumnarBatch = batch.get

  override def currentMetricsValues(): Array[CustomTaskMetric] = ScanMetrics.valuesOf(metrics)

  override def close(): Unit = if (!isClosed) {
    isClosed = true
    closeBatch()
    entries.foreach(_.drop())
    bookies.close()
    store.close()
    allocator.close()
  }

  private def begin(): Unit = {
    val indexes = readIndexes()
    val reads = narrowed(indexes).map { range =>
      RangeRead(range, slicesOf(range, indexes), filterOf(range, indexes))
    }
    entries = Some(
      new WantedEntries(
        reads.toIndexedSeq,
        readerOf,
        allocator,
        (range, message, from, until) =>
          columns(keyOf(range)).mayPass(message, filters(keyOf(range)), from, until),
        settings.batchBytes,
        partition.failOnDataLoss,
        metrics
      )
    )
  }

  private def readerOf(parts: Iterator[ReadPart]): EntryReader =
    new EntryReader(parts, partition.ledgers, bookies, store, settings, metrics, checkCancelled)

  private def partOf(number: Int, range: ScanRange, first: Long, last: Long): ReadPart =
    ReadPart(number, range.log, range.ledgerId, first, last, range.sizeBytes / range.entries + 1)

  private def convert(entry: WantedEntry): Unit =
    try {
      val WantedEntry(range, received, rows, from, until) = entry
      val end = from + Math.min((until - from).toLong, rowsLeft).toInt
      val firstOffset = range.rangeOffset + rows.firstRow
      batch = Some(
        columns(keyOf(range))
          .batch(rows.message, rows.timed(range), received.entryId, firstOffset, from, end)
      )
      rowsLeft -= end - from
    } finally entry.release()

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
      index <- indexes.get((range.ledgerId, range.slicesEntryId)) if isPruned(keyOf(range))
      slices <- index.slicesOf(range, wanted(keyOf(range)), columns(keyOf(range)).storedColumns)
    } yield slices

  /** The slices of the filter's columns of a range, if they are read before the others. */
  private def filterOf(
      range: ScanRange,
      indexes: Map[(Long, Long), RangeIndex]
  ): Option[EntrySlices] =
    for {
      filter <- filters.get(keyOf(range))
      index <- indexes.get((range.ledgerId, range.slicesEntryId))
      stored = columns(keyOf(range)).storedColumns
      slices <- index.slicesBefore(range, filter.places.toSeq, wanted(keyOf(range)), stored)
    } yield slices

  private def isPruned(key: (String, Int)): Boolean = wanted(key).size < columns(key).storedColumns

  private def keyOf(range: ScanRange): (String, Int) = (range.log, range.schemaId)

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
