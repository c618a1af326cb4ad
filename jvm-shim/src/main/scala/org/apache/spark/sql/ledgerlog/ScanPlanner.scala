package org.apache.spark.sql.ledgerlog

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper
import io.ledgerlog.spark.plan.{JvmPlan, PlanJson}
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Requests plans of one scan from the Python planner. */
final class ScanPlanner(tableSchema: StructType, options: CaseInsensitiveStringMap) {

  /** What the options select, for descriptions. */
  val subject: String = Seq("log", "path", "logs", "paths", "logPattern", "ledgerId")
    .flatMap(name => Option(options.get(name)))
    .headOption
    .getOrElse("of a table")

  /** The share of a row that these columns are, by the sizes that Spark expects of their types. */
  def shareOf(columns: StructType): Double =
    Math.min(1.0, columns.defaultSize.toDouble / Math.max(1, tableSchema.defaultSize))

  /** The number of rows that a scan without columns would return. */
  def count(): JvmPlan = ask(new StructType, isCount = true)

  /** The tasks of a scan of these columns. */
  def plan(columns: StructType): JvmPlan = ask(columns, isCount = false)

  private def ask(columns: StructType, isCount: Boolean): JvmPlan = {
    val request = new ObjectMapper().createObjectNode()
    request.put("format", PlanJson.AnswerFormat)
    request.put("count", isCount)
    request.put("table", tableSchema.json)
    request.put("columns", columns.json)
    request.put("case_sensitive", SQLConf.get.caseSensitiveAnalysis)
    val read = request.putObject("options")
    options.asCaseSensitiveMap.asScala.foreach { case (name, value) => read.put(name, value) }
    PlanJson.decode(PythonSource.plan(request.toString))
  }
}
