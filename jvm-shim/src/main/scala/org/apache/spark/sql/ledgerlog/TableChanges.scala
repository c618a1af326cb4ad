package org.apache.spark.sql.ledgerlog

import io.ledgerlog.spark.LedgerLogException
import org.apache.spark.sql.connector.catalog.TableChange

/** The changes of one ALTER TABLE that a log can make in one step. */
sealed trait TableChanges

object TableChanges {

  /** Properties to set. None restores the default of a property. */
  final case class Properties(values: Map[String, Option[String]]) extends TableChanges

  /** Columns and fields to add at the end. */
  final case class Columns(added: Seq[TableChange.AddColumn]) extends TableChanges

  def of(changes: Seq[TableChange]): TableChanges = {
    changes.foreach(check)
    val added = changes.collect { case change: TableChange.AddColumn => change }
    val values = changes.collect {
      case change: TableChange.SetProperty => change.property -> Option(change.value)
      case change: TableChange.RemoveProperty => change.property -> None
    }
    if (added.isEmpty) Properties(values.toMap)
    else if (values.isEmpty) Columns(added)
    else refuse("columns and properties in one statement", "use two statements")
  }

  private def check(change: TableChange): Unit = change match {
    case added: TableChange.AddColumn =>
      if (added.position != null)
        refuse(s"a column in the place ${added.position}", "leave FIRST and AFTER out")
    case _: TableChange.SetProperty | _: TableChange.RemoveProperty => ()
    case _: TableChange.RenameColumn => refuse("another name of a column", Again)
    case _: TableChange.DeleteColumn => refuse("fewer columns", Again)
    case _: TableChange.ColumnChange => refuse("another definition of a column", Again)
    case other => refuse(other.getClass.getSimpleName, "leave it out")
  }

  private val Again = "create the table again with CREATE OR REPLACE TABLE .. AS SELECT"

  private def refuse(what: String, instead: String): Nothing =
    throw LedgerLogException.configuration(
      s"a log cannot get $what: columns are only added, at the end, and properties are set. " +
        s"Nothing was changed: $instead."
    )
}
