package org.apache.spark.sql.ledgerlog

import java.util

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.{JsonNode, ObjectMapper}
import com.fasterxml.jackson.databind.node.ObjectNode
import io.ledgerlog.spark.LedgerLogException
import org.apache.spark.sql.catalyst.analysis.{
  NoSuchNamespaceException,
  NoSuchTableException,
  TableAlreadyExistsException
}
import org.apache.spark.sql.connector.catalog.{
  Identifier,
  NamespaceChange,
  StagedTable,
  StagingTableCatalog,
  SupportsNamespaces,
  Table,
  TableCatalogCapability,
  TableChange,
  TableInfo
}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The engine behind `LedgerCatalog`. Each question and each change is one request to Python. */
final class CatalogEngine extends StagingTableCatalog with SupportsNamespaces {
  private var catalogName = ""
  private var requests = new CatalogRequests(Map.empty)

  override def initialize(name: String, options: CaseInsensitiveStringMap): Unit = {
    catalogName = name
    requests = new CatalogRequests(CatalogOptions.of(name, options))
  }

  override def name(): String = catalogName

  override def capabilities(): util.Set[TableCatalogCapability] =
    util.EnumSet.of(TableCatalogCapability.SUPPORT_COLUMN_DEFAULT_VALUE)

  override def listTables(namespace: Array[String]): Array[Identifier] =
    CatalogRequests
      .listOf(existing(namespace).get("tables"))
      .map(Identifier.of(namespace, _))
      .toArray

  override def loadTable(ident: Identifier): Table = load(ident, Map.empty)

  override def loadTable(ident: Identifier, version: String): Table =
    load(ident, Map("versionAsOf" -> version))

  /** @param timestamp in microseconds; a log has the times of its versions in milliseconds */
  override def loadTable(ident: Identifier, timestamp: Long): Table =
    load(ident, Map("timestampAsOf" -> Math.floorDiv(timestamp, 1000L).toString))

  private def load(ident: Identifier, travel: Map[String, String]): Table = {
    val answer = ask("load", ident) { request =>
      CatalogRequests.put(request.putObject("travel"), travel)
    }
    val stored = StoredTable.decode(answer)
    if (stored.detail.isEmpty) new LogTable(titleOf(ident), stored, requests, travel.isEmpty)
    else new DetailTable(titleOf(ident), stored, requests)
  }

  override def createTable(ident: Identifier, info: TableInfo): Table = {
    ask("create", ident)(define(_, info))
    loadTable(ident)
  }

  override def alterTable(ident: Identifier, changes: TableChange*): Table = {
    TableChanges.of(changes) match {
      case TableChanges.Properties(values) =>
        ask("set_properties", ident) { request =>
          val node = request.putObject("changes")
          values.foreach { case (name, value) => node.put(name, value.orNull) }
        }
      case TableChanges.Columns(added) =>
        ask("add_columns", ident) { request =>
          val columns = request.putArray("columns")
          added.foreach { column =>
            val node = columns.addObject()
            val path = node.putArray("path")
            column.fieldNames.foreach(part => path.add(part))
            val schema = CatalogEngine.mapper.readTree(TableColumns.jsonOf(column))
            node.set[JsonNode]("field", schema.get("fields").get(0))
          }
        }
    }
    loadTable(ident)
  }

  override def dropTable(ident: Identifier): Boolean =
    ask("drop", ident)(_ => ()).get("dropped").booleanValue

  override def renameTable(from: Identifier, to: Identifier): Unit =
    throw LedgerLogException.configuration(
      s"a log keeps its name, so ${titleOf(from)} cannot be renamed: create ${titleOf(to)} with " +
        "CREATE TABLE .. AS SELECT, then drop the old table. Nothing was changed."
    )

  override def stageCreate(ident: Identifier, info: TableInfo): StagedTable =
    staged("create", ident, info)

  override def stageReplace(ident: Identifier, info: TableInfo): StagedTable =
    staged("replace", ident, info)

  override def stageCreateOrReplace(ident: Identifier, info: TableInfo): StagedTable =
    staged("create_or_replace", ident, info)

  private def staged(mode: String, ident: Identifier, info: TableInfo): StagedTable = {
    val answer = ask("stage", ident) { request =>
      define(request, info)
      request.put("mode", mode)
    }
    val options = CatalogRequests.textsOf(answer.get("options"))
    val isOverwrite = answer.get("is_overwrite").booleanValue

    def withoutRows(): Unit =
      if (isOverwrite)
        ask("replace", ident) { request =>
          define(request, info)
          CatalogRequests.put(request.putObject("write"), options)
        }
      else ask("create", ident)(define(_, info))

    new StagedLogTable(
      titleOf(ident),
      logOf(ident),
      info.columns,
      requests,
      options,
      isOverwrite,
      () => withoutRows()
    )
  }

  override def listNamespaces(): Array[Array[String]] = listNamespaces(Array.empty)

  override def listNamespaces(namespace: Array[String]): Array[Array[String]] =
    CatalogRequests.listOf(existing(namespace).get("namespaces")).map(namespace :+ _).toArray

  override def loadNamespaceMetadata(namespace: Array[String]): util.Map[String, String] = {
    existing(namespace)
    util.Map.of()
  }

  override def createNamespace(
      namespace: Array[String],
      metadata: util.Map[String, String]
  ): Unit = refuseNamespace(namespace, "created")

  override def alterNamespace(namespace: Array[String], changes: NamespaceChange*): Unit =
    refuseNamespace(namespace, "altered")

  override def dropNamespace(namespace: Array[String], cascade: Boolean): Boolean = {
    existing(namespace)
    refuseNamespace(namespace, "dropped")
  }

  private def refuseNamespace(namespace: Array[String], what: String): Nothing =
    throw LedgerLogException.configuration(
      s"the namespace ${namespace.mkString(".")} cannot be $what: a namespace exists as long as " +
        "the name of a table begins with it. Create or drop tables. Nothing was changed."
    )

  /** The names in a namespace. Raises if there is no such namespace. */
  private def existing(namespace: Array[String]): JsonNode = {
    val answer = requests.ask("names") { request =>
      val parts = request.putArray("namespace")
      namespace.foreach(part => parts.add(part))
    }
    if (!answer.get("exists").booleanValue) throw new NoSuchNamespaceException(namespace)
    answer
  }

  private def define(request: ObjectNode, info: TableInfo): Unit = {
    request.put("schema", TableColumns.jsonOf(info.columns))
    val parts = request.putArray("partitions")
    info.partitions.foreach(each => parts.add(each.describe()))
    CatalogRequests.put(request.putObject("properties"), info.properties.asScala.toMap)
  }

  /** The answer to a request about one table. A missing or existing table is an error of Spark. */
  private def ask(kind: String, ident: Identifier)(fill: ObjectNode => Unit): JsonNode =
    try
      requests.ask(kind) { request =>
        request.put("name", logOf(ident))
        fill(request)
      }
    catch {
      case error: LedgerLogException if error.kind == LedgerLogException.LogNotFound =>
        throw new NoSuchTableException(partsOf(ident))
      case error: LedgerLogException if error.kind == LedgerLogException.LogExists =>
        throw new TableAlreadyExistsException(partsOf(ident))
    }

  private def logOf(ident: Identifier): String = (ident.namespace :+ ident.name).mkString(".")

  private def partsOf(ident: Identifier): Seq[String] =
    (catalogName +: ident.namespace.toSeq) :+ ident.name

  private def titleOf(ident: Identifier): String = s"$catalogName.${logOf(ident)}"
}

private object CatalogEngine {
  private val mapper = new ObjectMapper
}
