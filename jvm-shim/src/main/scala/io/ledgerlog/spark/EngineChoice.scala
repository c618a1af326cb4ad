package io.ledgerlog.spark

import java.util.Properties

import scala.util.control.NonFatal

import org.apache.spark.sql.SparkSession

/** Decides whether the JVM engine answers `format("ledger")`. */
object EngineChoice {
  val Name = "ledger"
  val InactiveName = "ledger-shim-inactive"

  /** The setting of a session: `auto` and `jvm` use this engine, `python` the Python source. */
  val Setting = "spark.ledgerlog.engine"
  val Python = "python"

  /** The version of Spark that the jar was built for. */
  lazy val builtFor: String = {
    val properties = new Properties
    val stream = getClass.getResourceAsStream("/ledgerlog-spark.properties")
    if (stream != null) {
      try properties.load(stream)
      finally stream.close()
    }
    properties.getProperty("spark.version", "")
  }

  def shortName(): String =
    nameFor(org.apache.spark.SPARK_VERSION, builtFor, settingOfSession())

  def nameFor(running: String, built: String, setting: Option[String]): String =
    if (allows(setting) && minorOf(built).isDefined && minorOf(running) == minorOf(built)) Name
    else InactiveName

  /** Whether the setting of the session allows this engine. */
  def isWanted: Boolean = allows(settingOfSession())

  /** Raises if the jar was built for another minor version of Spark. */
  def checkVersion(running: String, built: String): Unit =
    if (minorOf(built).isEmpty || minorOf(running) != minorOf(built))
      throw LedgerLogException.configuration(
        s"the jar of ledgerlog was built for Spark $built, and this is Spark $running: use a " +
          "wheel or a jar of ledgerlog for this version, or remove the setting of the catalog"
      )

  /** Load a class that uses internal classes of Spark, and make an object of it. */
  def newEngine[T](className: String): T =
    Class
      .forName(className, true, getClass.getClassLoader)
      .getDeclaredConstructor()
      .newInstance()
      .asInstanceOf[T]

  private def allows(setting: Option[String]): Boolean =
    !setting.exists(_.trim.equalsIgnoreCase(Python))

  private def minorOf(version: String): Option[(String, String)] =
    version.split("[.-]") match {
      case Array(major, minor, _*) if major.nonEmpty && minor.nonEmpty => Some((major, minor))
      case _ => None
    }

  private def settingOfSession(): Option[String] =
    try
      SparkSession.getActiveSession
        .orElse(SparkSession.getDefaultSession)
        .flatMap(_.conf.getOption(Setting))
    catch {
      // A stopped session has no settings. This runs when Spark looks up any format, so it must not
      // fail.
      case NonFatal(_) => None
    }
}
