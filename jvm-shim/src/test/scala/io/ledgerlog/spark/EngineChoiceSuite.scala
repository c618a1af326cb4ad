package io.ledgerlog.spark

import java.util.ServiceLoader

import scala.jdk.CollectionConverters._

import org.apache.spark.sql.connector.catalog.TableProvider
import org.apache.spark.sql.sources.DataSourceRegister

class EngineChoiceSuite extends munit.FunSuite {
  test("the engine answers for the minor version that it was built for") {
    assertEquals(EngineChoice.nameFor("4.3.0", "4.3.1", None), "ledger")
    assertEquals(EngineChoice.nameFor("4.3.1-SNAPSHOT", "4.3.0", Some("auto")), "ledger")
    assertEquals(EngineChoice.nameFor("4.3.0", "4.3.0", Some("jvm")), "ledger")
  }

  test("the engine stays inactive on every other version, and if the session wants Python") {
    val inactive = "ledger-shim-inactive"
    assertEquals(EngineChoice.nameFor("4.2.0", "4.3.0", None), inactive)
    assertEquals(EngineChoice.nameFor("5.3.0", "4.3.0", None), inactive)
    assertEquals(EngineChoice.nameFor("4.30.0", "4.3.0", None), inactive)
    assertEquals(EngineChoice.nameFor("4.3.0", "", None), inactive)
    assertEquals(EngineChoice.nameFor("", "", None), inactive)
    assertEquals(EngineChoice.nameFor("4.3.0", "4.3.0", Some(" Python ")), inactive)
  }

  test("a catalog of a jar for another version of Spark is an error that names both") {
    EngineChoice.checkVersion("4.3.1", "4.3.0")
    for (built <- Seq("4.2.0", "")) {
      val error = intercept[LedgerLogException](EngineChoice.checkVersion("4.3.1", built))
      assertEquals(error.kind, "ConfigurationError")
      assert(error.text.contains(s"built for Spark $built, and this is Spark 4.3.1"))
    }
  }

  test("Spark finds the registered class, which answers for the version of this build") {
    assertEquals(EngineChoice.builtFor, org.apache.spark.SPARK_VERSION)
    val found = ServiceLoader
      .load(classOf[DataSourceRegister])
      .iterator
      .asScala
      .filter(_.isInstanceOf[LedgerSource])
      .toSeq
    assertEquals(found.map(_.shortName()), Seq("ledger"))
    val engine = EngineChoice.newEngine[TableProvider](LedgerSource.EngineClass)
    assertEquals(engine.getClass.getSimpleName, "HybridProvider")
  }
}
