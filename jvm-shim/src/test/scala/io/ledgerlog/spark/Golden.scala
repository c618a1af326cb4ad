package io.ledgerlog.spark

import java.nio.file.{Files, Path}
import java.util.Base64

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.JsonNode
import io.ledgerlog.spark.plan.PlanJson

/** The golden files of the repository. The tests run in its root folder. */
object Golden {
  private val folder = Path.of("tests", "golden")

  lazy val plans: Seq[(String, JsonNode)] =
    Files
      .list(folder.resolve("plan"))
      .iterator
      .asScala
      .toSeq
      .sorted
      .map(path => path.getFileName.toString -> json(path))

  /** Records that Apache BookKeeper's own encoders printed. */
  lazy val apache: Seq[JsonNode] =
    json(folder.resolve("apache_bookkeeper_4_17.json")).elements.asScala.toSeq

  lazy val entries: JsonNode = json(folder.resolve("entries").resolve("entries.json"))

  lazy val leaderEntries: JsonNode =
    json(folder.resolve("leader_entries").resolve("leader_entries.json"))

  lazy val filters: Seq[JsonNode] =
    json(folder.resolve("filters").resolve("filters.json")).elements.asScala.toSeq

  def apache(kind: String): Seq[JsonNode] = apache.filter(_.get("kind").asText == kind)

  def hex(text: String): Array[Byte] =
    text.grouped(2).map(Integer.parseInt(_, 16).toByte).toArray

  def base64(node: JsonNode): Array[Byte] = Base64.getDecoder.decode(node.asText)

  private def json(path: Path): JsonNode = PlanJson.parse(Files.readString(path))
}
