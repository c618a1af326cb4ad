package org.apache.spark.sql.ledgerlog

import java.util.concurrent.{CountDownLatch, Executors, TimeUnit}

import scala.collection.mutable
import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import io.ledgerlog.spark.plan.PlanJson
import org.apache.spark.sql.util.CaseInsensitiveStringMap

class PinnedRowsSuite extends munit.FunSuite {
  private val options = new CaseInsensitiveStringMap(Map("log" -> "a").asJava)
  private val others = new CaseInsensitiveStringMap(Map("log" -> "b").asJava)

  private def newRequest(): ObjectNode = new ObjectMapper().createObjectNode()

  private def pinOf(request: ObjectNode): Option[String] =
    Option(request.get("pinned")).map(_.textValue)

  private def answer(text: String): JsonNode = PlanJson.parse(s"""{"pinned":"$text"}""")

  /** Ask, and return the pin that the request had. */
  private def sent(
      rows: PinnedRows,
      asked: CaseInsensitiveStringMap,
      reply: String
  ): Option[String] = {
    var pin: Option[String] = None
    rows.ask(asked, newRequest()) { request =>
      pin = pinOf(request)
      answer(reply)
    }: Unit
    pin
  }

  test("later requests contain the text of the first answer") {
    val rows = new PinnedRows
    assertEquals(sent(rows, options, "one"), None)
    assertEquals(sent(rows, options, "two"), Some("one"))
    assertEquals(sent(rows, options, "three"), Some("one"))
  }

  test("requests with other options have rows of their own") {
    val rows = new PinnedRows
    assertEquals(sent(rows, options, "one"), None)
    assertEquals(sent(rows, others, "two"), None)
    assertEquals(sent(rows, others, "three"), Some("two"))
    assertEquals(sent(rows, options, "four"), Some("one"))
  }

  test("an answer without a text, or an error, pins nothing") {
    val rows = new PinnedRows
    rows.ask(options, newRequest())(_ => newRequest()): Unit
    intercept[IllegalStateException] {
      rows.ask(options, newRequest())(_ => throw new IllegalStateException)
    }
    assertEquals(sent(rows, options, "one"), None)
  }

  test("of two first requests, the second waits for the answer to the first") {
    val rows = new PinnedRows
    val pins = mutable.ArrayBuffer.empty[Option[String]]
    val isFirstSent = new CountDownLatch(1)
    val mayAnswer = new CountDownLatch(1)
    val threads = Executors.newFixedThreadPool(2)
    try {
      val first = threads.submit[Unit] { () =>
        rows.ask(options, newRequest()) { request =>
          pins += pinOf(request)
          isFirstSent.countDown()
          mayAnswer.await()
          answer("one")
        }: Unit
      }
      assert(isFirstSent.await(10, TimeUnit.SECONDS))
      val second = threads.submit[Unit](() => pins += sent(rows, options, "two"): Unit)
      mayAnswer.countDown()
      first.get(10, TimeUnit.SECONDS)
      second.get(10, TimeUnit.SECONDS)
    } finally threads.shutdown()
    assertEquals(pins.toSeq, Seq(None, Some("one")))
  }
}
