package org.apache.spark.sql.ledgerlog

import java.util.concurrent.ConcurrentHashMap

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import com.fasterxml.jackson.databind.node.ObjectNode
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The rows that the first query of a table has read. Its later queries read the same rows.
  *
  * Spark keeps the plan of a Python source with the table of a DataFrame or of a view. Here, each
  * query has a plan of its own, so the first answer of the planner pins the rows. A query with other
  * options has other rows.
  */
final class PinnedRows {
  private val pinned = new ConcurrentHashMap[Map[String, String], String]

  /** Send a request for a plan. Of several first requests, only one is sent at a time. */
  def ask(options: CaseInsensitiveStringMap, request: ObjectNode)(
      send: ObjectNode => JsonNode
  ): JsonNode = {
    val asked = options.asScala.toMap
    def isPinned: Boolean = pinned.containsKey(asked)
    def again(): JsonNode = send(request.put(PinnedRows.Field, pinned.get(asked)))
    if (isPinned) again()
    else
      synchronized {
        if (isPinned) again()
        else {
          val answer = send(request)
          Option(answer.get(PinnedRows.Field))
            .foreach(text => pinned.put(asked, text.textValue))
          answer
        }
      }
  }
}

private object PinnedRows {
  private val Field = "pinned"
}
