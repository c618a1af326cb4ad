package io.ledgerlog.spark.read

import java.util.concurrent.TimeUnit

import scala.collection.mutable

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.{DigestKind, LedgerRecord}
import io.ledgerlog.spark.wire.{Code, EntrySlices, Frames}

/** Reads the entries of a task's parts in order, ahead of the caller and from all replicas.
  *
  * An entry is absent only if all bookies of its write set report so twice, with a read of the
  * ledger's metadata between the reports, and the same ensemble (PROTOCOL.md#E2, LOGS.md#R3). All
  * methods run on the thread of the task.
  *
  * @param parts the parts to read. If it has no next part for now, it may have one after further entries were taken.
  * @param planned
  *   metadata of ledgers that the planner has read
  * @param checkCancelled
  *   throws an exception if Spark no longer needs the task
  */
final class EntryReader(
    parts: Iterator[ReadPart],
    planned: Map[Long, LedgerRecord],
    bookies: Bookies,
    store: LedgerStore,
    settings: ReadSettings,
    metrics: ReadMetrics,
    checkCancelled: () => Unit
) {
  private val records = mutable.Map.from(planned)
  private val jobs = mutable.Queue.empty[Job]
  private var part: Option[ReadPart] = None
  private var nextEntryId = 0L
  private var largestAnswer = 0L
  private var nextRequestId = 0L
  private var jobsBegun = 0L
  private var takesBatches = true

  /** The parts that are read in whole entries, and the failed rounds of the others. */
  private val wholeParts = mutable.Set.empty[Int]
  private val sliceFailures = mutable.Map.empty[Int, Int].withDefaultValue(0)

  /** The next entry of all parts, or None after the last one. The caller releases the entry. */
  def next(): Option[Received] = {
    while (true) {
      fill()
      if (jobs.isEmpty) return None
      val head = jobs.head
      if (head.entries.nonEmpty) {
        val entry = head.entries.dequeue()
        if (!head.part.isSecond) metrics.entries += 1
        metrics.bytes += entry.size
        return Some(entry)
      }
      if (head.isReceived) jobs.dequeue(): Unit
      else {
        head.failure.foreach(error => throw error)
        if (head.isHopeless) resolve(head)
        await(head)
      }
    }
    None
  }

  /** Whether the slices of a part will be requested. If not, its entries are read whole. */
  def takesSlices(part: ReadPart): Boolean =
    try part.slices.isDefined && takesSlices(part, recordOf(part), part.firstEntryId)
    catch {
      case _: LedgerLogException => false // it belongs to the place of the part among the others
    }

  /** Read no more entries of a part. Several parts may have the same place. */
  def skip(place: Int): Unit = {
    jobs.filter(_.part.place == place).foreach(_.drop())
    jobs.filterInPlace(_.part.place != place)
    if (part.exists(_.place == place)) part = None
  }

  /** Read nothing more. Late answers are released. */
  def drop(): Unit = {
    jobs.foreach(_.drop())
    jobs.clear()
  }

  // Requests.

  private def fill(): Unit =
    while (hasRoom && nextPart().isDefined) {
      val job =
        try newJob(part.get)
        catch {
          case error: LedgerLogException => failedJob(part.get, error)
        }
      jobs.enqueue(job)
      if (job.failure.isEmpty) begin(job)
    }

  private def hasRoom: Boolean = jobs.isEmpty || {
    val largest = if (largestAnswer > 0) largestAnswer else Frames.FrameSizeMax.toLong
    jobs.size < settings.jobsMax &&
    (jobs.size + 1) * largest <= settings.memoryBytes &&
    jobs.iterator.map(_.expected).sum < settings.windowBytes
  }

  private def nextPart(): Option[ReadPart] = {
    if (part.exists(nextEntryId > _.lastEntryId)) part = None
    if (part.isEmpty && parts.hasNext) {
      part = Some(parts.next())
      nextEntryId = part.get.firstEntryId
    }
    part
  }

  private def newJob(part: ReadPart): Job = {
    val record = recordOf(part)
    val lastOfFragment = record.lastOfFragment(nextEntryId).getOrElse(Long.MaxValue)
    val last = Math.min(part.lastEntryId, lastOfFragment)
    val slices = slicesOf(part, record)
    val job = slices match {
      case Some(wanted) =>
        val sizes = fittingSizes(wanted, last)
        new Job(part, nextEntryId, nextEntryId + sizes.size - 1, slices, sizes.sum)
      case None =>
        val size = part.entrySizeBytes + EntryReader.BesidePayload
        val fitting = Math.min(settings.batchEntriesMax.toLong, settings.batchBytes / size)
        val count = if (record.isStriped || !takesBatches) 1 else Math.max(1, fitting)
        val end = Math.min(last, nextEntryId + count - 1)
        new Job(part, nextEntryId, end, None, (end - nextEntryId + 1) * size)
    }
    nextEntryId = job.lastEntryId + 1
    job
  }

  /** The slices to request; None if whole entries are read.
    *
    * An HMAC proves that the owner of the password wrote an entry. A slice has only a CRC.
    */
  private def slicesOf(part: ReadPart, record: LedgerRecord): Option[EntrySlices] =
    part.slices.filter(_ => takesSlices(part, record, nextEntryId))

  private def takesSlices(part: ReadPart, record: LedgerRecord, entryId: Long): Boolean =
    takesBatches && !record.isStriped && record.digest != DigestKind.Hmac &&
      !wholeParts(part.place) &&
      record.fragmentOf(entryId).ensemble.exists(bookies.mayTakeSlices)

  /** The sizes of the next entries' slices, as many as fit into one request and one answer. */
  private def fittingSizes(slices: EntrySlices, lastEntryId: Long): Seq[Long] = {
    val last = Math.min(lastEntryId, nextEntryId + EntrySlices.EntriesMax - 1)
    var (size, ranges) = (Frames.BatchCountedSize.toLong, 0)
    (nextEntryId to last).iterator
      .map(entryId => (entryId, Frames.LengthSize + slices.sizeOf(entryId).toLong))
      .takeWhile { case (entryId, entrySize) =>
        size += entrySize
        ranges += slices.rangesOf(entryId).size
        val fits = size <= settings.batchBytes && ranges <= EntrySlices.RangesMax
        fits || entryId == nextEntryId
      }
      .map(_._2)
      .toVector
  }

  /** A job for the rest of a part whose metadata cannot be read. */
  private def failedJob(part: ReadPart, error: LedgerLogException): Job = {
    val job = new Job(part, nextEntryId, part.lastEntryId, None, 0)
    job.failure = Some(error)
    nextEntryId = part.lastEntryId + 1
    job
  }

  private def begin(job: Job): Unit = {
    val isSliced = job.slices.isDefined && takesBatches
    beginAs(job, if (isSliced) ReadMode.Slices else wholeMode(job))
  }

  private def wholeMode(job: Job): ReadMode =
    if (job.nextEntryId == job.lastEntryId || !takesBatches) ReadMode.Single else ReadMode.Batch

  private def beginAs(job: Job, mode: ReadMode): Unit = {
    jobsBegun += 1
    job.restart(orderOf(job, mode), mode)
    if (!job.isHopeless) requestNext(job)
  }

  /** The bookies to ask, those with few failures first. Different jobs begin with different ones. */
  private def orderOf(job: Job, mode: ReadMode): IndexedSeq[Int] = {
    val record = recordOf(job.part)
    val ensemble = record.fragmentOf(job.nextEntryId).ensemble
    val members = mode match {
      case ReadMode.Single => record.writeSet(job.nextEntryId)
      case ReadMode.Batch => ensemble.indices
      case ReadMode.Slices if wholeParts(job.part.place) => Nil
      case ReadMode.Slices =>
        ensemble.indices.filter(index => bookies.mayTakeSlices(ensemble(index)))
    }
    val rotation = if (members.isEmpty) 0 else (jobsBegun % members.size).toInt
    (members.drop(rotation) ++ members.take(rotation))
      .sortBy(index => bookies.failuresOf(ensemble(index)))
      .toIndexedSeq
  }

  private def requestNext(job: Job): Unit = {
    val record = recordOf(job.part)
    val index = job.order(job.tried)
    job.tried += 1
    nextRequestId += 1
    val request = new Request(
      id = nextRequestId,
      job = job,
      index = index,
      bookieId = record.fragmentOf(job.nextEntryId).ensemble(index),
      firstEntryId = job.nextEntryId,
      count = if (job.mode == ReadMode.Single) 1 else (job.lastEntryId - job.nextEntryId + 1).toInt,
      mode = job.mode,
      digest = record.digest,
      sentNanos = System.nanoTime(),
      slices = job.slices.filter(_ => job.mode == ReadMode.Slices)
    )
    job.outstanding += request
    metrics.requests += 1
    metrics.replicas += request.bookieId
    bookies.send(request)
  }

  private def recordOf(part: ReadPart): LedgerRecord =
    records.getOrElseUpdate(
      part.ledgerId,
      store.ledger(part.ledgerId).getOrElse(throw loss(part, part.firstEntryId, EntryReader.Gone))
    )

  // Answers.

  private def await(head: Job): Unit = {
    checkCancelled()
    val answer = bookies.answers.poll(EntryReader.TickMs, TimeUnit.MILLISECONDS)
    if (answer != null) handle(answer)
    if (head.resumeNanos.exists(_ <= System.nanoTime())) {
      head.resumeNanos = None
      begin(head)
    }
    checkTimes()
  }

  private def handle(answer: Answer): Unit = {
    val Answer(request, code, entries, sizeBytes) = answer
    val job = request.job
    job.outstanding -= request
    largestAnswer = Math.max(largestAnswer, sizeBytes.toLong)
    val took = job.take(entries)
    if (code == Code.BadRequest && request.mode == ReadMode.Slices)
      bookies.noteWithoutSlices(request.bookieId)
    else {
      if (code == Code.BadRequest && request.isBatch) takesBatches = false
      if (code != Code.Ok && !code.isAbsent) bookies.noteFailure(request.bookieId)
    }
    if (!job.isDropped && !job.isReceived) {
      if (took) {
        job.isConfirmed = false
        job.reloads = 0
        job.busyRounds = 0
        begin(job) // a short answer does not show that the rest is absent
      } else goOn(job, request, code)
    }
  }

  /** Request the rest elsewhere, if no request is outstanding any more.
    *
    * The last answer may be that of an older request, whose first entry has been received since.
    */
  private def goOn(job: Job, request: Request, code: Code): Unit = {
    if (request.firstEntryId == job.nextEntryId) {
      metrics.retries += 1
      if (request.mode == job.mode) job.codes(request.index) = code
    }
    if (job.outstanding.isEmpty) {
      if (job.tried < job.order.size && (job.mode != ReadMode.Batch || takesBatches))
        requestNext(job)
      else if (job.mode == ReadMode.Batch) beginAs(job, ReadMode.Single)
      else job.isHopeless = true
    }
  }

  /** Send slow requests to another bookie too, and close connections without answers. */
  private def checkTimes(): Unit = {
    val now = System.nanoTime()
    val late = mutable.LinkedHashSet.empty[String]
    jobs.foreach { job =>
      job.outstanding.foreach { request =>
        if (now - request.sentNanos > settings.readTimeoutMs * 1000000L) late += request.bookieId
      }
      val isSlow = job.outstanding.nonEmpty && job.outstanding.forall { request =>
        now - request.sentNanos > settings.hedgeDelayMs * 1000000L
      }
      if (isSlow && !job.isReceived && job.tried < job.order.size) {
        metrics.hedges += 1
        requestNext(job)
      }
    }
    late.foreach(bookies.drop)
  }

  // Entries that no bookie sent. The job is the first one, and has no entries that were received.

  private def resolve(job: Job): Unit = {
    val codes = job.codes.values.toSeq
    if (codes.contains(Code.Busy) && job.busyRounds < settings.busyRounds) {
      if (job.resumeNanos.isEmpty) {
        job.busyRounds += 1
        val delayMs = Math.min(
          settings.busyDelayMaxMs.toLong,
          settings.busyDelayMs.toLong << Math.min(job.busyRounds - 1, 10)
        )
        job.resumeNanos = Some(System.nanoTime() + delayMs * 1000000L)
      }
    } else if (job.mode == ReadMode.Slices) readWhole(job)
    else if (job.isConfirmed || job.reloads == settings.reloadsMax) throw failure(job)
    else reload(job)
  }

  /** Read the next entries of a job whole, because no bookie sent their slices.
    *
    * The job is the first one, and its received entries were taken. So not more than one answer of
    * whole entries is in memory. The rest of the job is requested as slices again, unless this
    * failed too often.
    */
  private def readWhole(job: Job): Unit = {
    val place = job.part.place
    sliceFailures(place) += 1
    metrics.slicesGivenUp += 1
    if (sliceFailures(place) == EntryReader.SliceFailuresMax) wholeParts += place
    beginAs(job, wholeMode(job))
  }

  private def reload(job: Job): Unit = {
    job.reloads += 1
    val loaded = store
      .ledger(job.part.ledgerId)
      .getOrElse(throw loss(job.part, job.nextEntryId, EntryReader.Missing))
    val before = recordOf(job.part).fragmentOf(job.nextEntryId).ensemble
    job.isConfirmed = loaded.fragmentOf(job.nextEntryId).ensemble == before
    records(job.part.ledgerId) = loaded
    bookies.forgetAddresses()
    begin(job)
  }

  private def failure(job: Job): LedgerLogException = {
    val ledgerId = job.part.ledgerId
    val ensemble = recordOf(job.part).fragmentOf(job.nextEntryId).ensemble
    val answers =
      job.codes.map { case (index, code) => s"${ensemble(index)}: ${code.text}" }.mkString(", ")
    val subject = s"entry ${job.nextEntryId} of ledger $ledgerId"
    val codes = job.codes.values.toSeq
    val answered = codes.filterNot(Set[Code](Code.Timeout, Code.Unavailable, Code.Busy).contains)
    def all(code: Code): Boolean = answered.nonEmpty && answered.forall(_ == code)
    if (codes.forall(_.isAbsent)) {
      val closed = recordOf(job.part).lastEntryId.filter(_ < job.part.lastEntryId)
      loss(
        job.part,
        job.nextEntryId,
        closed.fold(EntryReader.NoBookie)(last => s"the ledger was closed at entry $last")
      )
    } else if (all(Code.DigestMismatch))
      new LedgerLogException(
        LedgerLogException.DigestMismatch,
        s"$subject: every replica that answered had a bad digest ($answers)"
      )
    else if (all(Code.Unauthorized))
      new LedgerLogException(
        LedgerLogException.Unauthorized,
        s"$subject: wrong password ($answers); use the password that the ledger was created with"
      )
    else
      new LedgerLogException(
        LedgerLogException.EntryUnknown,
        s"$subject: not all replicas answered, and none of those that did has the entry " +
          s"($answers); try again when more of its bookies answer"
      )
  }

  private def loss(part: ReadPart, entryId: Long, why: String): LedgerLogException =
    LedgerLogException.dataLoss(part.log, part.ledgerId, entryId, part.lastEntryId, why)
}

private object EntryReader {
  val TickMs = 20L

  /** Bytes of an entry in a batch's answer without its payload: length, header, largest digest. */
  val BesidePayload = 56L

  /** After so many failures, the rest of a part is read whole: its index may be wrong. */
  val SliceFailuresMax = 3
  val Gone = "the ledger is gone"
  val Missing = "the ledger does not exist"
  val NoBookie = "no bookie has them"
}
