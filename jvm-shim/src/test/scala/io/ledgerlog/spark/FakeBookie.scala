package io.ledgerlog.spark

import java.io.{DataInputStream, DataOutputStream, IOException}
import java.net.{InetAddress, ServerSocket, Socket}
import java.nio.ByteBuffer
import java.util.concurrent.CopyOnWriteArrayList

import io.ledgerlog.spark.plan.BookieAddress

/** A bookie on a real socket, which answers as `answer` says. */
final class FakeBookie(entries: Map[(Long, Long), Array[Byte]]) extends AutoCloseable {

  /** What to do with a request. The default answers it. */
  @volatile var answer: FakeBookie.Asked => FakeBookie.Answer = _ => FakeBookie.Serve
  @volatile var requests = 0

  private val server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress)
  private val sockets = new CopyOnWriteArrayList[Socket]
  private val acceptor = daemon(() => while (true) accept())

  def address: BookieAddress = BookieAddress("127.0.0.1", server.getLocalPort, takesSlices = true)

  /** Connections that the client has not closed. */
  def openConnections: Int = sockets.size

  override def close(): Unit = {
    server.close()
    sockets.forEach(_.close())
    acceptor.join()
  }

  private def daemon(body: () => Unit): Thread = {
    val thread = new Thread(() =>
      try body()
      catch { case _: IOException => () }
    )
    thread.setDaemon(true)
    thread.start()
    thread
  }

  private def accept(): Unit = {
    val socket = server.accept()
    sockets.add(socket)
    daemon(() =>
      try
        serve(
          new DataInputStream(socket.getInputStream),
          new DataOutputStream(socket.getOutputStream)
        )
      finally {
        socket.close()
        sockets.remove(socket): Unit
      }
    ): Unit
  }

  private def serve(input: DataInputStream, output: DataOutputStream): Unit = while (true) {
    val body = new Array[Byte](input.readInt())
    input.readFully(body)
    val request = ByteBuffer.wrap(body)
    val operation = request.getInt() >> 16 & 0xff
    val asked =
      if (operation == 7) {
        val (ledger, first) = (request.getLong(), request.getLong())
        val id = request.getLong()
        FakeBookie.Asked(ledger, first, Some(id), request.getInt(), request.getLong())
      } else if (operation == 66) {
        val (ledger, first) = (request.getLong(), request.getLong())
        val (id, count, size) = (request.getLong(), request.getInt(), request.getLong())
        val slices = Seq.fill(count) {
          request.getLong() -> Seq.fill(request.getInt())((request.getInt(), request.getInt()))
        }
        FakeBookie.Asked(ledger, first, Some(id), count, size, slices)
      } else FakeBookie.Asked(request.getLong(), request.getLong(), None, 1, 0)
    synchronized(requests += 1)
    val bytes = answer(asked) match {
      case FakeBookie.Serve => served(asked)
      case FakeBookie.Refuse(code) => frame(asked, code, Array.emptyByteArray)
      case FakeBookie.Raw(raw) => raw
      case FakeBookie.Silence => Array.emptyByteArray
      case FakeBookie.HangUp => throw new IOException("the bookie hangs up")
    }
    output.write(bytes)
    output.flush()
  }

  private def served(asked: FakeBookie.Asked): Array[Byte] = {
    val ranges = asked.slices.toMap
    val found = (asked.first until asked.first + asked.count)
      .map(id => entries.get((asked.ledger, id)).map(cut(_, ranges.get(id))))
      .takeWhile(_.isDefined)
      .flatten
    if (found.isEmpty) frame(asked, 2, Array.emptyByteArray)
    else if (asked.isBatch) {
      val sizes = found.scanLeft(36L)(_ + 4 + _.length).drop(1)
      val fitting = found.zip(sizes).zipWithIndex.collect {
        case ((stored, size), place) if place == 0 || size <= asked.size => stored
      }
      frame(asked, 0, fitting.flatMap(each => int(each.length) ++ each).toArray)
    } else frame(asked, 0, found.head)
  }

  private def cut(stored: Array[Byte], ranges: Option[Seq[(Int, Int)]]): Array[Byte] =
    ranges.fold(stored)(_.flatMap { case (at, size) => stored.slice(at, at + size) }.toArray)

  private def frame(asked: FakeBookie.Asked, code: Int, rest: Array[Byte]): Array[Byte] = {
    val operation = asked.operation
    val head = int(0x02000000 | operation << 16) ++ int(code) ++ long(asked.ledger) ++
      long(asked.first) ++ asked.id.fold(Array.emptyByteArray)(long)
    int(head.length + rest.length) ++ head ++ rest
  }

  private def int(value: Int): Array[Byte] = ByteBuffer.allocate(4).putInt(value).array()
  private def long(value: Long): Array[Byte] = ByteBuffer.allocate(8).putLong(value).array()
}

object FakeBookie {

  /** A request; `id` is that of a batch, and `slices` are the ranges of a request for slices. */
  final case class Asked(
      ledger: Long,
      first: Long,
      id: Option[Long],
      count: Int,
      size: Long,
      slices: Seq[(Long, Seq[(Int, Int)])] = Nil
  ) {
    def isBatch: Boolean = id.isDefined
    def isSliced: Boolean = slices.nonEmpty
    def operation: Int = if (isSliced) 66 else if (isBatch) 7 else 2
  }

  sealed trait Answer
  case object Serve extends Answer
  case object Silence extends Answer
  case object HangUp extends Answer
  final case class Refuse(code: Int) extends Answer
  final case class Raw(bytes: Array[Byte]) extends Answer
}
