package org.apache.spark.sql.ledgerlog

import java.io.{DataInputStream, DataOutputStream}
import java.nio.charset.StandardCharsets.UTF_8

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.ObjectMapper
import com.fasterxml.jackson.databind.node.ObjectNode
import io.ledgerlog.spark.plan.PlanJson
import net.razorvine.pickle.Pickler
import org.apache.spark.api.python.{PythonFunction, PythonWorkerUtils, SpecialLengths}
import org.apache.spark.sql.SparkSession
import org.apache.spark.sql.connector.read.{InputPartition, ScanBuilder}
import org.apache.spark.sql.connector.write.{LogicalWriteInfo, WriteBuilder}
import org.apache.spark.sql.errors.QueryCompilationErrors
import org.apache.spark.sql.execution.datasources.v2.python.{
  PythonDataSourceV2,
  PythonScanBuilder,
  PythonStreamingInputPartition,
  PythonWriteBuilder
}
import org.apache.spark.sql.execution.python.PythonPlannerRunner
import org.apache.spark.sql.types.{DataType, StructType}
import org.apache.spark.sql.util.CaseInsensitiveStringMap

/** The Python source of the session. This file uses internal classes of Spark. */
object PythonSource {
  private val Name = "ledger"

  /** The module that runs in Spark's planner workers. Its name has to begin with `pyspark`. */
  private val PlannerModule = "pyspark_ledger"

  /** The schema of a read. The planner worker answers, which then also plans the read, so a session
    * starts one process less. Errors are those of the Python source.
    */
  def inferSchema(options: CaseInsensitiveStringMap): StructType = {
    val answer = PlanJson.parse(answerOf(newRequest(options).toString, "create", "instance"))
    PlanJson.checkFormat(answer, PlanJson.AnswerFormat)
    DataType.fromJson(answer.get("schema").textValue).asInstanceOf[StructType]
  }

  /** A request to the planner worker about a read with these options. */
  def newRequest(options: CaseInsensitiveStringMap): ObjectNode = {
    val request = new ObjectMapper().createObjectNode()
    request.put("format", PlanJson.AnswerFormat)
    val read = request.putObject("options")
    options.asCaseSensitiveMap.asScala.foreach { case (name, value) => read.put(name, value) }
    request
  }

  def scanBuilder(schema: StructType, options: CaseInsensitiveStringMap): ScanBuilder =
    new PythonScanBuilder(newSource(), Name, schema, options)

  /** A source for all queries of one table. Spark keeps the plan of its first query. */
  final class Kept {
    private val source = newSource()

    def scanBuilder(schema: StructType, options: CaseInsensitiveStringMap): ScanBuilder =
      new PythonScanBuilder(source, Name, schema, options)
  }

  def writeBuilder(info: LogicalWriteInfo): WriteBuilder =
    new PythonWriteBuilder(newSource(), Name, info)

  /** A task of a micro-batch, as Python has pickled it; None if it has its rows already. */
  def taskOf(partition: InputPartition): Option[Array[Byte]] = partition match {
    case task: PythonStreamingInputPartition if task.blockId.isEmpty => Some(task.pickedPartition)
    case _ => None
  }

  /** The answer of the Python planner, as JSON. Its errors are those of planning in Python. */
  def plan(request: String): String = answerOf(request, "plan", "read")

  private def answerOf(request: String, action: String, of: String): String = {
    val session = SparkSession.active.asInstanceOf[org.apache.spark.sql.classic.SparkSession]
    val source = session.sessionState.dataSourceManager.lookupDataSource(Name)
    new Planner(source.dataSourceCls, request, action, of).runInPython()
  }

  /** A new object for each use, because it keeps the schema and the plan of its first use. */
  private def newSource(): PythonDataSourceV2 = {
    val source = new PythonDataSourceV2
    source.setShortName(Name)
    source
  }

  private final class Planner(
      source: PythonFunction,
      request: String,
      action: String,
      of: String
  ) extends PythonPlannerRunner[String](source) {
    override val workerModule: String = PlannerModule

    override def writeToPython(output: DataOutputStream, pickler: Pickler): Unit = {
      PythonWorkerUtils.writePythonFunction(source, output)
      PythonWorkerUtils.writeUTF(request, output)
    }

    override def receiveFromPython(input: DataInputStream): String = {
      val size = input.readInt()
      if (size == SpecialLengths.PYTHON_EXCEPTION_THROWN)
        throw QueryCompilationErrors
          .pythonDataSourceError(action, of, PythonWorkerUtils.readUTF(input))
      new String(PythonWorkerUtils.readBytes(size, input), UTF_8)
    }
  }
}
