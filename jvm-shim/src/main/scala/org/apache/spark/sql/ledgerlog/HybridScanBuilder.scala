package org.apache.spark.sql.ledgerlog

import io.ledgerlog.spark.plan.JvmPlan
import org.apache.spark.sql.connector.expressions.aggregate.{Aggregation, CountStar}
import org.apache.spark.sql.connector.read.{
  Scan,
  ScanBuilder,
  SupportsPushDownAggregates,
  SupportsPushDownLimit,
  SupportsPushDownRequiredColumns
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Collects what one query needs. Spark makes a new builder for each scan, so nothing is shared.
  *
  * @param options
  *   the options of a batch scan
  * @param streamOptions
  *   the options of a stream, which cannot select a version
  */
final class HybridScanBuilder(
    tableSchema: StructType,
    options: CaseInsensitiveStringMap,
    streamOptions: CaseInsensitiveStringMap
) extends ScanBuilder
    with SupportsPushDownRequiredColumns
    with SupportsPushDownAggregates
    with SupportsPushDownLimit {
  private val planner = new ScanPlanner(tableSchema, options)
  private var required = tableSchema
  private var limit: Option[Long] = None
  private var count: Option[CountScan] = None

  /** Spark offers an aggregation more than once, and each count is a request to the planner. */
  private lazy val counted: JvmPlan = planner.count()

  override def pruneColumns(requiredSchema: StructType): Unit = required = requiredSchema

  /** `count(*)` without groups is answered from the log's list if the list alone shows it. */
  override def supportCompletePushDown(aggregation: Aggregation): Boolean =
    count.isDefined || pushAggregation(aggregation)

  override def pushAggregation(aggregation: Aggregation): Boolean = {
    val counts = aggregation.aggregateExpressions()
    if (
      aggregation.groupByExpressions().isEmpty && counts.nonEmpty &&
      counts.forall(_.isInstanceOf[CountStar])
    )
      counted match {
        case JvmPlan.Counted(Some(rows)) =>
          count = Some(new CountScan(rows, counts.length, planner.subject))
        case _ => ()
      }
    count.isDefined
  }

  override def pushLimit(rows: Int): Boolean = {
    limit = Some(rows.toLong)
    true
  }

  /** Each task ends after the rows of the limit. Spark takes the rows of all tasks. */
  override def isPartiallyPushed: Boolean = true

  override def build(): Scan =
    count.getOrElse(new HybridScan(planner, required, streamOptions, limit))
}
