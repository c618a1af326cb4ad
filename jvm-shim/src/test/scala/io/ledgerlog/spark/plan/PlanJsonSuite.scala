package io.ledgerlog.spark.plan

import scala.jdk.CollectionConverters._

import com.fasterxml.jackson.databind.node.ObjectNode
import io.ledgerlog.spark.{Golden, LedgerLogException}

class PlanJsonSuite extends munit.FunSuite {
  Golden.plans.foreach { case (name, golden) =>
    test(s"the golden plan $name is reproduced") {
      val plan = golden.get("plan")
      val encoded = PlanJson.encode(PlanJson.partitions(plan)).toString
      assertEquals(PlanJson.parse(encoded), plan.get("partitions"))
      val versions = PlanJson.versions(plan).toMap
      assertEquals(versions.keySet, plan.get("versions").fieldNames.asScala.toSet)
    }
  }

  test("there are golden plans") {
    assert(Golden.plans.size >= 20)
  }

  test("a plan or an answer of another format is refused") {
    val plan = Golden.plans.head._2.get("plan").deepCopy[ObjectNode]()
    plan.put("format", PlanJson.PlanFormat + 1)
    val error = intercept[LedgerLogException](PlanJson.partitions(plan))
    assert(error.text.contains("same release"), error.text)
    intercept[LedgerLogException](PlanJson.decode("""{"aggregates": [1]}"""))
    intercept[LedgerLogException](PlanJson.decode("""{"format": 2, "aggregates": [1]}"""))
  }

  test("values, and scans for the Python source") {
    PlanJson.decode("""{"format":1,"aggregates":[7,null]}""") match {
      case JvmPlan.Aggregated(Some(Seq(count, min))) =>
        assertEquals(count.asLong, 7L)
        assert(min.isNull)
      case other => fail(other.toString)
    }
    assertEquals(PlanJson.decode("""{"format":1,"aggregates":null}"""), JvmPlan.Aggregated(None))
    val delegated = PlanJson.decode("""{"format":1,"delegate":"x","options":{"log":"a"}}""")
    assertEquals(delegated, JvmPlan.Delegated("x", Map("log" -> "a")))
  }

  test("an answer has all that a task needs") {
    val text =
      """{"format":1,"plan":{"format":3,"versions":{"x":2},"ledgers":{},"partitions":[[]]},
        |"ledgers":{"7":{"ensemble_size":3,"write_quorum":2,"fragments":[[0,["a","b","c"]],
        |[5,["a","b","d"]]],"last_entry_id":null,"digest":"HMAC"}},"bookies":{"a":["host",3181,true]},
        |"schemas":[{"log":"x","schema_id":1,"schema":"AAE=","origins":[2,null,"_offset"]}],
        |"service":{"connect":"z:1","root":"/l","paths":{"7":"/l/7"}},"password":"cGFzcw==",
        |"fail_on_data_loss":false}""".stripMargin
    val plan = PlanJson.decode(text).asInstanceOf[JvmPlan.Planned]
    assertEquals(plan.logs, Seq("x" -> 2L))
    val record = plan.ledgers(7L)
    assertEquals(record.digest, DigestKind.Hmac: DigestKind)
    assertEquals(record.fragmentOf(4).ensemble.last, "c")
    assertEquals(record.fragmentOf(5).ensemble.last, "d")
    assertEquals((record.lastOfFragment(4), record.lastOfFragment(5)), (Some(4L), None))
    assertEquals(record.writeSet(5), Seq(2, 0))
    assert(record.isStriped)
    assertEquals(
      plan.schemas.head.origins,
      Seq(ColumnOrigin.Stored(2), ColumnOrigin.Missing, ColumnOrigin.Metadata("_offset"))
    )
    assertEquals(new String(plan.password), "pass")
    assertEquals(plan.bookies("a"), BookieAddress("host", 3181, takesSlices = true))
    assertEquals(plan.service, ServiceAddress("z:1", "/l", Map(7L -> "/l/7")))
    assertEquals(plan.failOnDataLoss, false)
  }
}
