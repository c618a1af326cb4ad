package io.ledgerlog.spark.plan

import java.util.Base64

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.{ArrayNode, JsonNodeFactory, ObjectNode}
import io.ledgerlog.spark.LedgerLogException

/** The JSON of plans, which `ledgerlog_spark/datasource/scan/plan_json.py` writes. */
object PlanJson {

  /** The format of `ScanPlan`. Another format has other fields, so it is refused. */
  val PlanFormat = 3

  /** The format of the answer around the plan. */
  val AnswerFormat = 1

  private val mapper = new ObjectMapper
  private val nodes = JsonNodeFactory.instance

  def parse(text: String): JsonNode = mapper.readTree(text)

  def decode(text: String): JvmPlan = decode(parse(text))

  def decode(answer: JsonNode): JvmPlan = {
    checkFormat(answer, AnswerFormat)
    if (answer.has("delegate"))
      JvmPlan.Delegated(
        answer.get("delegate").asText,
        answer.get("options").properties.asScala.map(e => e.getKey -> e.getValue.asText).toMap
      )
    else if (answer.has("aggregates"))
      JvmPlan.Aggregated(Option(answer.get("aggregates")).filterNot(_.isNull).map(elements))
    else planned(answer)
  }

  private def planned(answer: JsonNode): JvmPlan.Planned = {
    val plan = answer.get("plan")
    val service = answer.get("service")
    JvmPlan.Planned(
      logs = versions(plan),
      partitions = partitions(plan),
      ledgers = answer
        .get("ledgers")
        .properties
        .asScala
        .map(each => each.getKey.toLong -> ledger(each.getValue))
        .toMap,
      bookies = answer
        .get("bookies")
        .properties
        .asScala
        .map { each =>
          val place = each.getValue
          each.getKey ->
            BookieAddress(place.get(0).asText, place.get(1).asInt, place.path(2).asBoolean)
        }
        .toMap,
      schemas = elements(answer.get("schemas")).map(schema),
      service = ServiceAddress(
        service.get("connect").asText,
        service.get("root").asText,
        service
          .get("paths")
          .properties
          .asScala
          .map(each => each.getKey.toLong -> each.getValue.asText)
          .toMap
      ),
      password = Base64.getDecoder.decode(answer.get("password").asText),
      failOnDataLoss = answer.get("fail_on_data_loss").asBoolean
    )
  }

  /** The logs of a `ScanPlan`, with their versions. */
  def versions(plan: JsonNode): Seq[(String, Long)] =
    plan.get("versions").properties.asScala.toSeq.map(e => e.getKey -> e.getValue.asLong)

  /** The tasks of a `ScanPlan`. */
  def partitions(plan: JsonNode): Seq[Seq[ScanRange]] = {
    checkFormat(plan, PlanFormat)
    elements(plan.get("partitions")).map(elements(_).map(range))
  }

  private def range(node: JsonNode): ScanRange =
    ScanRange(
      log = node.get("log").asText,
      ledgerId = node.get("ledger_id").asLong,
      firstEntryId = node.get("first_entry_id").asLong,
      lastEntryId = node.get("last_entry_id").asLong,
      rows = node.get("rows").asLong,
      sizeBytes = node.get("size_bytes").asLong,
      schemaId = node.get("schema_id").asInt,
      rangeOffset = node.get("range_offset").asLong,
      startOffset = node.get("start_offset").asLong,
      endOffset = node.get("end_offset").asLong,
      commitTimes = elements(node.get("commit_times")).map { pair =>
        pair.get(0).asLong -> Option(pair.get(1)).filterNot(_.isNull).map(_.asLong)
      },
      indexEntryId = node.get("index_entry_id").asLong,
      entryRows = Option(node.get("entry_rows"))
        .filterNot(_.isNull)
        .map(pair => pair.get(0).asLong -> pair.get(1).asLong),
      form = node.get("form").asText,
      isSearched = node.get("is_searched").asBoolean,
      slicesEntryId = node.path("slices_entry_id").asLong(-1)
    )

  /** The tasks of a plan in the form of `partitions`, to compare them. */
  def encode(partitions: Seq[Seq[ScanRange]]): ArrayNode =
    array(partitions.map(ranges => array(ranges.map(encode))))

  private def encode(range: ScanRange): ObjectNode = {
    val node = nodes.objectNode
    node.put("log", range.log)
    node.put("ledger_id", range.ledgerId)
    node.put("first_entry_id", range.firstEntryId)
    node.put("last_entry_id", range.lastEntryId)
    node.put("rows", range.rows)
    node.put("size_bytes", range.sizeBytes)
    node.put("schema_id", range.schemaId)
    node.put("range_offset", range.rangeOffset)
    node.put("start_offset", range.startOffset)
    node.put("end_offset", range.endOffset)
    node.set[JsonNode](
      "commit_times",
      array(range.commitTimes.map { case (end, time) =>
        array(Seq(nodes.numberNode(end), time.fold[JsonNode](nodes.nullNode)(nodes.numberNode(_))))
      })
    )
    node.put("index_entry_id", range.indexEntryId)
    node.put("slices_entry_id", range.slicesEntryId)
    node.set[JsonNode](
      "entry_rows",
      range.entryRows.fold[JsonNode](nodes.nullNode) { case (first, end) =>
        array(Seq(nodes.numberNode(first), nodes.numberNode(end)))
      }
    )
    node.put("form", range.form)
    node.put("is_searched", range.isSearched)
  }

  private def ledger(node: JsonNode): LedgerRecord =
    LedgerRecord(
      ensembleSize = node.get("ensemble_size").asInt,
      writeQuorum = node.get("write_quorum").asInt,
      fragments = elements(node.get("fragments")).map { each =>
        Fragment(each.get(0).asLong, elements(each.get(1)).map(_.asText))
      },
      lastEntryId = Option(node.get("last_entry_id")).filterNot(_.isNull).map(_.asLong),
      digest = DigestKind
        .ofName(node.get("digest").asText)
        .getOrElse(throw LedgerLogException.metadataFormat(s"unknown digest ${node.get("digest")}"))
    )

  private def schema(node: JsonNode): StoredSchema =
    StoredSchema(
      log = node.get("log").asText,
      schemaId = node.get("schema_id").asInt,
      message = Base64.getDecoder.decode(node.get("schema").asText),
      origins = elements(node.get("origins")).map {
        case number if number.isInt => ColumnOrigin.Stored(number.asInt)
        case text if text.isTextual => ColumnOrigin.Metadata(text.asText)
        case _ => ColumnOrigin.Missing
      },
      filter = Option(node.get("filter")).map(RowFilter.decode)
    )

  private def elements(node: JsonNode): Seq[JsonNode] = node.elements.asScala.toVector

  private def array(values: Seq[JsonNode]): ArrayNode = {
    val node = nodes.arrayNode
    values.foreach(node.add)
    node
  }

  def checkFormat(node: JsonNode, expected: Int): Unit = {
    val format = node.get("format")
    if (format == null || format.asInt(-1) != expected)
      throw LedgerLogException.wireFormat(
        s"the plan has format $format, and this jar reads format $expected: the jar and the " +
          "Python package have to be of the same release"
      )
  }
}
