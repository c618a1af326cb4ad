package io.ledgerlog.spark.read

import java.io.{EOFException, IOException}
import java.net.InetSocketAddress
import java.nio.ByteBuffer
import java.nio.channels.SocketChannel
import java.util.concurrent.{BlockingQueue, ConcurrentHashMap}
import java.util.zip.CRC32C

import scala.collection.mutable
import scala.jdk.CollectionConverters._
import scala.util.control.NonFatal

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.{BookieAddress, DigestKind}
import io.ledgerlog.spark.wire.{
  Code,
  EntryDigest,
  EntrySlices,
  Frames,
  SlicedBody,
  StoredEntry,
  StoredSlice
}
import org.apache.arrow.memory.{ArrowBuf, BufferAllocator}

/** One TCP connection to a bookie, with a thread that connects, receives and verifies answers.
  *
  * Every request that was sent gets one `Answer` in `answers`, even if the connection fails. Only
  * one thread calls `send` and `close`.
  */
final class BookieConnection(
    address: BookieAddress,
    password: Array[Byte],
    settings: ReadSettings,
    allocator: BufferAllocator,
    answers: BlockingQueue[Answer]
) extends AutoCloseable {
  private val channel = SocketChannel.open()
  private val pending = new ConcurrentHashMap[AnyRef, Request]
  private val unsent = mutable.Queue.empty[ByteBuffer]
  private var isConnected = false
  @volatile private var failure: Option[Throwable] = None
  private val digests = mutable.Map.empty[DigestKind, EntryDigest]
  private val sliceSum = new CRC32C
  private val receiver = {
    val thread = new Thread(() => run(), s"ledgerlog-bookie-${address.host}:${address.port}")
    thread.setDaemon(true)
    thread
  }
  receiver.start()

  /** Whether the connection has failed. A failed connection answers `Unavailable` to everything. */
  def hasFailed: Boolean = failure.isDefined

  /** Send a request. For each entry, at most one `ReadMode.Single` request may be pending. */
  def send(request: Request): Unit = {
    if (pending.putIfAbsent(keyOf(request), request) != null)
      throw new IllegalStateException(s"entry ${request.firstEntryId} is requested already")
    val frame =
      if (request.slices.isDefined) slicesFrame(request)
      else if (request.isBatch)
        Frames.batchRead(
          request.ledgerId,
          request.firstEntryId,
          request.id,
          request.count,
          settings.batchBytes
        )
      else Frames.read(request.ledgerId, request.firstEntryId)
    try
      synchronized {
        if (isConnected) write(frame) else unsent.enqueue(frame)
      }
    catch {
      case error: IOException => fail(error)
    }
    if (hasFailed) failPending()
  }

  override def close(): Unit = {
    fail(new IOException("the task has ended"))
    // The thread ends at once: its channel is closed, and it waits for nothing else. An interrupt
    // does not end this wait, because the memory of the thread's answers has to be released.
    var isInterrupted = false
    while (receiver.isAlive)
      try receiver.join()
      catch {
        case _: InterruptedException => isInterrupted = true
      }
    if (isInterrupted) Thread.currentThread().interrupt()
  }

  private def slicesFrame(request: Request): ByteBuffer = {
    val before = StoredEntry.HeaderSize + request.digest.sizeBytes
    val entries = request.entryIds.map { entryId =>
      entryId -> request.slices.get
        .rangesOf(entryId)
        .map(range => StoredSlice(before + range.place, range.size))
    }
    Frames.readSlices(request.ledgerId, request.id, settings.batchBytes, entries)
  }

  private def keyOf(request: Request): AnyRef =
    if (request.isBatch) java.lang.Long.valueOf(request.id)
    else (request.ledgerId, request.firstEntryId)

  private def write(frame: ByteBuffer): Unit = while (frame.hasRemaining) channel.write(frame)

  private def run(): Unit =
    try {
      val socket = channel.socket()
      socket.setTcpNoDelay(true)
      socket.connect(new InetSocketAddress(address.host, address.port), settings.connectTimeoutMs)
      synchronized {
        unsent.foreach(write)
        unsent.clear()
        isConnected = true
      }
      val head = ByteBuffer.allocate(Frames.LengthSize + Frames.ReadHeadSize)
      while (true) receive(head)
    } catch {
      case NonFatal(error) => fail(error)
    } finally {
      if (!hasFailed) fail(new IOException("the receiver has ended"))
      failPending()
    }

  private def receive(head: ByteBuffer): Unit = {
    head.clear()
    readFully(head)
    head.flip()
    val rest = Frames.bodySize(head.getInt()) - Frames.ReadHeadSize
    val decoded = Frames.decodeHead(head)
    val isBatch = decoded.operation != Frames.Read
    val isSliced = decoded.operation == Frames.ReadSlices
    val (key, size) =
      if (isBatch) {
        val id = ByteBuffer.allocate(8)
        if (rest < id.capacity) throw LedgerLogException.wireFormat("a batch without request id")
        readFully(id)
        (java.lang.Long.valueOf(id.getLong(0)), rest - id.capacity)
      } else ((decoded.ledgerId, decoded.entryId), rest)
    val request = pending.get(key)
    if (request == null || request.isBatch != isBatch || request.slices.isDefined != isSliced)
      throw LedgerLogException.wireFormat(s"an answer without a pending request: $key")
    if (size > request.answerSizeMax)
      throw LedgerLogException.wireFormat(
        s"$size bytes for ${request.answerSizeMax} requested ones"
      )
    if (decoded.code != Code.Ok && size > 0)
      throw LedgerLogException.wireFormat(s"an answer ${decoded.code.text} with entries")
    val answer =
      if (decoded.code == Code.Ok && size > 0) entriesOf(request, isBatch, size)
      else
        Answer(request, if (decoded.code == Code.Ok) Code.IoError else decoded.code, Nil, size)
    // The request stays pending until its answer is queued, so that it gets exactly one answer.
    if (pending.remove(key, request)) answers.put(answer) else answer.release()
  }

  private def entriesOf(request: Request, isBatch: Boolean, size: Int): Answer = {
    val bytes = allocator.buffer(size.toLong)
    try {
      val view = bytes.nioBuffer(0, size)
      readFully(view)
      view.flip()
      val slices =
        if (isBatch) Frames.entriesOf(view) else IndexedSeq(StoredSlice(0, size))
      // A bookie may send more entries than were requested.
      val wanted = slices.take(request.count)
      val entries = request.slices match {
        case Some(requested) => slicedEntries(request, requested, bytes, view, wanted)
        case None => wholeEntries(request, bytes, view, wanted)
      }
      Answer(request, if (entries.isEmpty) Code.DigestMismatch else Code.Ok, entries, size)
    } finally bytes.getReferenceManager.release(): Unit
  }

  private def wholeEntries(
      request: Request,
      bytes: ArrowBuf,
      view: ByteBuffer,
      found: IndexedSeq[StoredSlice]
  ): Seq[Received] = {
    val digest = digests.getOrElseUpdate(request.digest, EntryDigest.of(request.digest, password))
    StoredEntry
      .validPrefix(view, found, request.ledgerId, request.firstEntryId, digest)
      .zipWithIndex
      .map { case (payload, place) =>
        received(bytes, request.firstEntryId + place, payload, None)
      }
  }

  private def slicedEntries(
      request: Request,
      requested: EntrySlices,
      bytes: ArrowBuf,
      view: ByteBuffer,
      found: IndexedSeq[StoredSlice]
  ): Seq[Received] =
    request.entryIds
      .zip(found)
      .takeWhile { case (entryId, slice) => requested.isValid(entryId, view, slice, sliceSum) }
      .map { case (entryId, slice) =>
        received(bytes, entryId, slice, Some(requested.bodyOf(entryId)))
      }

  private def received(
      bytes: ArrowBuf,
      entryId: Long,
      payload: StoredSlice,
      body: Option[SlicedBody]
  ): Received = {
    bytes.getReferenceManager.retain()
    new Received(entryId, bytes, payload.place, payload.size, body)
  }

  private def readFully(target: ByteBuffer): Unit =
    while (target.hasRemaining)
      if (channel.read(target) < 0) throw new EOFException("the bookie closed the connection")

  private def fail(error: Throwable): Unit = {
    if (failure.isEmpty) failure = Some(error)
    try channel.close()
    catch {
      case _: IOException => () // the channel is closed even after an error
    }
  }

  private def failPending(): Unit =
    pending.asScala.keys.toSeq.foreach { key =>
      val request = pending.remove(key)
      if (request != null) answers.put(Answer(request, Code.Unavailable, Nil, 0))
    }
}
