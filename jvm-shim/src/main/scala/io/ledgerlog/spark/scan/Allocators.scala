package io.ledgerlog.spark.scan

import org.apache.arrow.memory.{BufferAllocator, RootAllocator}

/** The memory of this engine in a JVM. Each task has an allocator of its own, which it closes. */
object Allocators {
  private val root = new RootAllocator(Long.MaxValue)

  def forTask(name: String): BufferAllocator = root.newChildAllocator(name, 0, Long.MaxValue)

  /** Bytes in use by all tasks. */
  def allocatedBytes: Long = root.getAllocatedMemory
}
