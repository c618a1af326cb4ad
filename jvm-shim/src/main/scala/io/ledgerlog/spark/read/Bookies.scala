package io.ledgerlog.spark.read

import java.util.concurrent.LinkedBlockingQueue

import scala.collection.mutable

import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.BookieAddress
import io.ledgerlog.spark.wire.Code
import org.apache.arrow.memory.BufferAllocator

/** The connections of one task, at most one for each bookie. All methods run on one thread. */
final class Bookies(
    planned: Map[String, BookieAddress],
    store: LedgerStore,
    password: Array[Byte],
    settings: ReadSettings,
    allocator: BufferAllocator
) extends AutoCloseable {
  val answers = new LinkedBlockingQueue[Answer]
  private val addresses = mutable.Map.from(planned)
  private val connections = mutable.Map.empty[String, BookieConnection]
  private val failedNanos = mutable.Map.empty[String, Long]
  private val withoutSlices = mutable.Set.empty[String]
  private val failures = mutable.Map.empty[String, Int].withDefaultValue(0)

  /** Number of failed requests of a bookie. Bookies with few failures get the next requests. */
  def failuresOf(bookieId: String): Int = failures(bookieId)

  def noteFailure(bookieId: String): Unit = failures(bookieId) += 1

  /** Whether to request slices from a bookie. True until its registration is read. */
  def mayTakeSlices(bookieId: String): Boolean =
    !withoutSlices(bookieId) && addresses.get(bookieId).forall(_.takesSlices)

  /** Send a bookie no further requests for slices. */
  def noteWithoutSlices(bookieId: String): Unit = withoutSlices += bookieId

  /** Send a request. Every request gets one answer in `answers`. */
  def send(request: Request): Unit =
    connectionTo(request.bookieId) match {
      case Some(connection) if request.slices.isEmpty || mayTakeSlices(request.bookieId) =>
        connection.send(request)
      case Some(_) => answers.put(Answer(request, Code.BadRequest, Nil, 0))
      case None => answers.put(Answer(request, Code.Unavailable, Nil, 0))
    }

  /** Close the connection to a bookie that did not answer in time. Its requests fail. */
  def drop(bookieId: String): Unit = connections.remove(bookieId).foreach { connection =>
    connection.close()
    failedNanos(bookieId) = System.nanoTime()
  }

  /** Look bookies up again before the next connection, because they may have moved. */
  def forgetAddresses(): Unit = {
    addresses.clear()
    failedNanos.clear()
    withoutSlices.clear()
  }

  override def close(): Unit = {
    connections.values.foreach(_.close())
    connections.clear()
    var answer = answers.poll()
    while (answer != null) {
      answer.release()
      answer = answers.poll()
    }
  }

  private def connectionTo(bookieId: String): Option[BookieConnection] = {
    connections.get(bookieId).filter(_.hasFailed).foreach(_ => drop(bookieId))
    connections.get(bookieId).orElse {
      val isPaused = failedNanos.get(bookieId).exists { failed =>
        System.nanoTime() - failed < settings.reconnectDelayMs * 1000000L
      }
      if (isPaused) None
      else
        addresses.get(bookieId).orElse(lookedUp(bookieId)).map { address =>
          val made = new BookieConnection(address, password, settings, allocator, answers)
          connections(bookieId) = made
          made
        }
    }
  }

  private def lookedUp(bookieId: String): Option[BookieAddress] = {
    val found =
      try store.bookie(bookieId)
      catch {
        case _: LedgerLogException => None // the other replicas may answer
      }
    found match {
      case Some(address) => addresses(bookieId) = address
      case None => failedNanos(bookieId) = System.nanoTime()
    }
    found
  }
}
