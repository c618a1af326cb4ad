package org.apache.spark.sql.ledgerlog

import io.ledgerlog.spark.plan.JvmPlan
import org.apache.spark.sql.connector.expressions.SortOrder
import org.apache.spark.sql.connector.expressions.aggregate.Aggregation
import org.apache.spark.sql.connector.expressions.filter.Predicate
import org.apache.spark.sql.connector.read.{
  Scan,
  ScanBuilder,
  SupportsPushDownAggregates,
  SupportsPushDownLimit,
  SupportsPushDownRequiredColumns,
  SupportsPushDownTopN,
  SupportsPushDownV2Filters
}
import org.apache.spark.sql.types.StructType
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** Collects what one query needs. Spark makes a new builder for each scan, so nothing is shared.
  *
  * @param options
  *   the options of a batch scan
  * @param streamOptions
  *   the options of a stream, which cannot select a version
  * @param pinned
  *   the rows of the table, if a query has already read them
  */
final class HybridScanBuilder(
    tableSchema: StructType,
    options: CaseInsensitiveStringMap,
    streamOptions: CaseInsensitiveStringMap,
    pinned: PinnedRows
) extends ScanBuilder
    with SupportsPushDownRequiredColumns
    with SupportsPushDownV2Filters
    with SupportsPushDownAggregates
    with SupportsPushDownTopN
    with SupportsPushDownLimit {
  private val planner = new ScanPlanner(tableSchema, options, pinned)
  private val streamPlanner = new ScanPlanner(tableSchema, streamOptions, pinned)
  private var required = tableSchema
  private var filters: Seq[Predicate] = Nil
  private var top: Option[TopRequest] = None
  private var limit: Option[Long] = None
  private var values: Option[AggregateScan] = None

  /** Spark offers an aggregation more than once, and each time would be a request. */
  private var answered: Option[(AggregateRequest, Option[AggregateScan])] = None

  override def pruneColumns(requiredSchema: StructType): Unit = required = requiredSchema

  /** The filters choose ranges and entries. Spark applies all of them again to the rows. */
  override def pushPredicates(predicates: Array[Predicate]): Array[Predicate] = {
    filters = predicates.toSeq
    predicates
  }

  /** No filter is applied completely here. The plan's description shows those that were used. */
  override def pushedPredicates(): Array[Predicate] = Array.empty

  /** Values without groups and filters are taken from the log's list, if they are exact there. */
  override def supportCompletePushDown(aggregation: Aggregation): Boolean =
    pushAggregation(aggregation)

  override def pushAggregation(aggregation: Aggregation): Boolean = {
    values =
      if (filters.nonEmpty) None
      else AggregateRequest.of(aggregation, tableSchema).flatMap(answerTo)
    values.isDefined
  }

  private def answerTo(request: AggregateRequest): Option[AggregateScan] =
    answered match {
      case Some((same, answer)) if same == request => answer
      case _ =>
        val answer = planner.aggregates(request) match {
          case JvmPlan.Aggregated(Some(found)) =>
            Some(new AggregateScan(request.answer, found, planner.subject))
          case _ => None
        }
        answered = Some((request, answer))
        answer
    }

  /** The order and the limit choose ranges and entries. Spark sorts their rows. */
  override def pushTopN(orders: Array[SortOrder], rows: Int): Boolean = {
    if (filters.isEmpty) top = TopRequest.of(orders.toSeq, rows, tableSchema)
    top.isDefined
  }

  override def pushLimit(rows: Int): Boolean = {
    limit = Some(rows.toLong)
    true
  }

  /** Each task ends after the rows of the limit. Spark takes the rows of all tasks. */
  override def isPartiallyPushed: Boolean = true

  override def build(): Scan =
    values.getOrElse(
      new HybridScan(planner, streamPlanner, required, streamOptions, filters, top, limit)
    )
}
