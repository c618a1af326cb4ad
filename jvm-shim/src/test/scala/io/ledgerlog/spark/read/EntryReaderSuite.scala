package io.ledgerlog.spark.read

import java.util.Random

import scala.collection.mutable

import io.ledgerlog.spark.{FakeBookie, FakeStore, LedgerLogException, Ledgers}
import io.ledgerlog.spark.FakeBookie.{HangUp, Raw, Refuse, Serve, Silence}
import org.apache.arrow.memory.RootAllocator

class EntryReaderSuite extends ReaderSuite {
  worldTest("all entries come once, in order, from several bookies") { world =>
    assertEquals(world.read(), allIds)
    assert(world.bookies.values.count(_.requests > 0) > 1)
    assertEquals(world.store.reads, 0)
    assertEquals(world.metrics.entries, 50L)
  }

  worldTest("several parts are read ahead, and a part can be skipped") { world =>
    val parts = Seq(
      ReadPart(0, "x", 7, 3, 4, 40),
      ReadPart(1, "x", 7, 10, 10, 40),
      ReadPart(2, "x", 7, 20, 29, 40)
    )
    assertEquals(world.read(parts), Seq(3L, 4L, 10L) ++ (20L to 29L))
  }

  worldTest("a bookie that dies in the middle of a scan is replaced") { world =>
    assertEquals(world.read(onEntry = id => if (id == 9) world.bookies("b").close()), allIds)
  }

  worldTest("damage, refusals, hang-ups and wrong bytes lead to the next replica") { world =>
    val random = new Random(5)
    val damaged = stored.view.mapValues { bytes =>
      val copy = bytes.clone()
      copy(random.nextInt(copy.length)) = (copy.head ^ 0x40).toByte
      copy
    }.toMap
    val wrong = new FakeBookie(damaged)
    try {
      world.bookies("a").answer = asked => if (asked.first % 3 == 0) HangUp else Refuse(101)
      val others = world.bookies.updated("b", wrong)
      val store = new FakeStore(Map.empty, Map("b" -> wrong.address))
      val allocator = new RootAllocator(256L << 20)
      val addresses = others.map { case (name, bookie) => name -> bookie.address }
      val connections = new Bookies(addresses, store, Array.emptyByteArray, fast, allocator)
      val parts = Iterator(ReadPart(0, "x", 7, 0, Entries - 1L, 40))
      val reader = new EntryReader(
        parts,
        Map(7L -> world.ledger),
        connections,
        store,
        fast,
        world.metrics,
        () => ()
      )
      val ids = Iterator
        .continually(reader.next())
        .takeWhile(_.isDefined)
        .map { entry =>
          entry.get.release()
          entry.get.entryId
        }
        .toSeq
      assertEquals(ids, allIds)
      assert(world.metrics.retries > 0)
      connections.close()
      allocator.close()
    } finally wrong.close()
  }

  worldTest("a slow bookie is hedged, and a silent one is given up") { world =>
    world.bookies("a").answer = _ => Silence
    assertEquals(world.read(), allIds)
    assert(world.metrics.hedges > 0)
  }

  worldTest("a job goes on after the late answer of a slow bookie", patient) { world =>
    val script = new LateAnswer(world, stored((7L, 0L)))
    assertEquals(world.read(Seq(ReadPart(0, "x", 7, 0, 4, 40))), 0L to 4L)
    assert(script.isSent)
  }

  worldTest("without batches, each entry is requested alone") { world =>
    world.all(asked => if (asked.isBatch) Refuse(100) else Serve)
    assertEquals(world.read(), allIds)
  }

  worldTest("with striping, an entry is requested from its write set only") { world =>
    world.ledger = record(quorum = 2)
    world.bookies.zipWithIndex.foreach { case ((name, bookie), _) =>
      bookie.answer = asked =>
        if (asked.isBatch) HangUp
        else if (world.ledger.writeSet(asked.first).exists(names(_) == name)) Serve
        else Refuse(1)
    }
    assertEquals(world.read(), allIds)
    assertEquals(world.metrics.retries, 0L)
  }

  worldTest("an entry that no bookie has is lost after a look at the metadata, not before") {
    world =>
      world.all(asked =>
        if (asked.first >= 30 || asked.count + asked.first > 30) Refuse(2) else Serve
      )
      val error = world.failure(LedgerLogException.DataLoss)
      assert(error.text.contains("no bookie has them"), error.text)
      assert(error.text.contains("to 49 of ledger 7, listed by log 'x'"), error.text)
      assertEquals(world.store.reads, 1)
  }

  worldTest("a ledger that was closed below the listed end has lost entries") { world =>
    world.store.ledgers = Map(7L -> record(last = Some(19)))
    world.all(asked => if (asked.first + asked.count > 20) Refuse(2) else Serve)
    assert(world.failure(LedgerLogException.DataLoss).text.contains("closed at entry 19"))
  }

  worldTest("a deleted ledger has lost entries") { world =>
    world.store.ledgers = Map.empty
    world.all(_ => Refuse(1))
    assert(world.failure(LedgerLogException.DataLoss).text.contains("the ledger does not exist"))
  }

  worldTest("an entry is not lost while a bookie does not answer") { world =>
    world.all(_ => Refuse(2))
    world.bookies("c").close()
    val error = world.failure(LedgerLogException.EntryUnknown)
    assert(error.text.contains("c: unavailable"), error.text)
  }

  worldTest("damage on all replicas is not loss") { world =>
    val garbage = Ledgers.stored(8, 0, payload(0))
    world.all { asked =>
      if (asked.isBatch) Refuse(101) else Raw(frameOf(asked, garbage))
    }
    world.failure(LedgerLogException.DigestMismatch): Unit
  }

  worldTest("busy bookies are asked again later") { world =>
    val refusals = mutable.Map.empty[Long, Int].withDefaultValue(0)
    world.all { asked =>
      refusals.synchronized {
        refusals(asked.first) += 1
        if (refusals(asked.first) <= 8) Refuse(106) else Serve
      }
    }
    assertEquals(world.read(), allIds)
  }

  worldTest("a moved ensemble is found by the metadata") { world =>
    world.ledger = record(Seq("d", "e", "f"))
    world.store.bookies = world.bookies.map { case (name, bookie) => name -> bookie.address }
    assertEquals(world.read(), allIds)
    assert(world.store.reads > 0)
  }

  worldTest("a bookie with a new address is found by its registration") { world =>
    val moved = new FakeBookie(stored)
    try {
      world.ledger = record(Seq("d"), quorum = 1)
      world.store.ledgers = Map(7L -> world.ledger)
      world.store.bookies = Map("d" -> moved.address)
      assertEquals(world.read(), allIds)
    } finally moved.close()
  }

  worldTest("a cancelled task closes its sockets") { world =>
    world.all(asked => if (asked.first > 20) Silence else Serve)
    intercept[IllegalStateException](
      world.read(onEntry = id => if (id == 5) world.isCancelled = true)
    )
    world.awaitClosed()
  }

  worldTest("answers of random bytes never do more than fail over") { world =>
    val random = new Random(17)
    def garbage(asked: FakeBookie.Asked): Array[Byte] = random.synchronized {
      val bytes = frameOf(asked, stored((7L, asked.first)))
      random.nextInt(4) match {
        case 0 => random.nextBytes(bytes)
        case 1 => bytes(random.nextInt(bytes.length)) = random.nextInt().toByte
        case 2 => Array[Byte](127, -1, -1, -1).copyToArray(bytes): Unit
        case _ => bytes(4 + random.nextInt(20)) = random.nextInt().toByte
      }
      bytes
    }
    world.bookies("a").answer = asked => Raw(garbage(asked))
    world.bookies("b").answer = asked => Raw(garbage(asked))
    assertEquals(world.read(), allIds)
  }
}
