package org.apache.spark.sql.ledgerlog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import io.ledgerlog.spark.LedgerLogException
import io.ledgerlog.spark.plan.PlanJson

/** Questions and changes of the catalog, which the Python package answers in a planner worker.
  *
  * @param options
  *   the options of the catalog
  */
final class CatalogRequests(val options: Map[String, String]) {

  /** The answer to a request, whose arguments `fill` sets. Raises LedgerLogException. */
  def ask(kind: String)(fill: ObjectNode => Unit): JsonNode = {
    val request = CatalogRequests.mapper.createObjectNode()
    request.put("format", PlanJson.AnswerFormat)
    request.put("catalog", kind)
    CatalogRequests.put(request.putObject("options"), options)
    fill(request)
    val answer = CatalogRequests.mapper.readTree(PythonSource.plan(request.toString))
    Option(answer.get("error")).foreach { error =>
      val text = error.get("message").textValue
      throw new LedgerLogException(error.get("kind").textValue, text)
    }
    answer
  }
}

object CatalogRequests {
  private val mapper = new ObjectMapper

  def put(node: ObjectNode, values: Map[String, String]): Unit =
    values.foreach { case (name, value) => node.put(name, value) }

  def textsOf(node: JsonNode): Map[String, String] =
    node.fieldNames.asScala.map(name => name -> node.get(name).textValue).toMap

  def listOf(node: JsonNode): Seq[String] = node.elements.asScala.map(_.textValue).toSeq
}
