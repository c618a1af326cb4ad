package org.apache.spark.sql.ledgerlog

import scala.jdk.CollectionConverters._

import io.ledgerlog.spark.LedgerLogException
import org.apache.spark.sql.util.CaseInsensitiveStringMap

class TableOptionsSuite extends munit.FunSuite {
  private def options(values: (String, String)*): CaseInsensitiveStringMap =
    new CaseInsensitiveStringMap(values.toMap.asJava)

  test("a statement cannot name another log, and not what the catalog sets") {
    for (name <- Seq("log", "PATH", "logs", "logPattern", "ledgerId", "metadataServiceUri")) {
      intercept[LedgerLogException](TableOptions.ofRead("t", options(name -> "x")))
      intercept[LedgerLogException](TableOptions.ofWrite("t", options(name -> "x")))
    }
    for (name <- Seq("expectedVersion", "expectedlogid", "errorIfExists", "overwriteSchema")) {
      assertEquals(TableOptions.ofRead("t", options(name -> "x")), Map(name -> "x"))
      intercept[LedgerLogException](TableOptions.ofWrite("t", options(name -> "x")))
    }
  }

  test("other options are passed on, and the version of a scan is that of its table") {
    val asked = options("startingOffsets" -> "5", "versionAsOf" -> "1", "engine" -> "jvm")
    assertEquals(TableOptions.ofRead("t", asked), Map("startingOffsets" -> "5"))
  }

  test("an option replaces one of the same name in another case") {
    val replaced =
      TableOptions.replaced(Map("passwordFile" -> "a", "x" -> "y"), Map("PASSWORDFILE" -> "b"))
    assertEquals(replaced, Map("PASSWORDFILE" -> "b", "x" -> "y"))
  }

  test("a table of the session catalog adds its options to scans and writes") {
    val table = new SessionTableOptions(
      Map("provider" -> "ledger", "option.log" -> "a", "option.compression" -> "lz4").asJava
    )
    val read = TableOptions.textsIn(table.ofRead(options("endingOffsets" -> "5")))
    assertEquals(read, Map("log" -> "a", "compression" -> "lz4", "endingOffsets" -> "5"))
    assertEquals(TableOptions.textsIn(table.ofRead(options("log" -> "b"))), Map("log" -> "b"))
    val written = TableOptions.textsIn(table.ofWrite(options("compression" -> "none")))
    assertEquals(written, Map("log" -> "a", "path" -> "a", "compression" -> "none"))
    intercept[LedgerLogException](table.ofWrite(options("path" -> "b")))
  }

  test("what is loaded or saved by a path has no table") {
    val table = new SessionTableOptions(Map("path" -> "a", "option.log" -> "b").asJava)
    assertEquals(TableOptions.textsIn(table.ofWrite(options("path" -> "a"))), Map("path" -> "a"))
    assertEquals(TableOptions.textsIn(table.ofRead(options("path" -> "a"))), Map("path" -> "a"))
  }
}
