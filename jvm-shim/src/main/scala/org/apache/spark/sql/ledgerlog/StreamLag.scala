package org.apache.spark.sql.ledgerlog

import java.util

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.plan.PlanJson

/** The distance of a stream from the ends of its logs, as metrics of the source. */
object StreamLag {

  /** The sums of rows and bytes, and the longest time. The time is -1 if it is unknown for a log.
    *
    * @param report
    *   the ends of the logs, as `reportLatestOffset` of the Python stream returns them
    */
  def of(report: String): util.Map[String, String] = {
    val lags = PlanJson.parse(report).elements.asScala.flatMap(log => Option(log.get("lag"))).toSeq
    def numbers(name: String): Seq[Long] = lags.flatMap(lag => Option(lag.get(name))).map(_.asLong)
    val times = numbers("ms")
    util.Map.of(
      "lagRows",
      numbers("rows").sum.toString,
      "lagBytes",
      numbers("bytes").sum.toString,
      "lagMs",
      (if (times.exists(_ < 0)) -1L else times.maxOption.getOrElse(0L)).toString
    )
  }
}
