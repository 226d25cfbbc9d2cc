// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.kotlin

import io.fluxccl.DataType
import io.fluxccl.Deadline
import io.fluxccl.FluxCclException
import io.fluxccl.ReduceOp
import io.fluxccl.RemoteFailure
import io.fluxccl.collective.CollectiveCall
import io.fluxccl.collective.Collectives
import io.fluxccl.device.DeviceBuffer
import io.fluxccl.device.FloatView
import io.fluxccl.group.DeviceChoice
import io.fluxccl.group.JoinOptions
import io.fluxccl.group.RankGroup
import java.util.concurrent.TimeUnit
import kotlin.time.Duration.Companion.milliseconds
import kotlin.time.Duration.Companion.seconds
import kotlinx.coroutines.Dispatchers
import kotlinx.coroutines.async
import kotlinx.coroutines.awaitAll
import kotlinx.coroutines.coroutineScope
import kotlinx.coroutines.flow.map
import kotlinx.coroutines.flow.toList
import kotlinx.coroutines.future.await
import kotlinx.coroutines.reactive.asFlow
import kotlinx.coroutines.reactor.awaitSingle
import kotlinx.coroutines.reactor.awaitSingleOrNull
import kotlinx.coroutines.runBlocking
import kotlinx.coroutines.withContext
import kotlinx.coroutines.withTimeout
import kotlinx.coroutines.withTimeoutOrNull
import org.junit.jupiter.api.Assertions.assertEquals
import org.junit.jupiter.api.Assertions.assertNull
import org.junit.jupiter.api.Test
import org.junit.jupiter.api.Timeout

suspend fun Collectives.sum(x: DeviceBuffer) {
  allReduce(x, DataType.FLOAT32, ReduceOp.SUM).awaitSingleOrNull() // suspends, holds no thread
}

/** The code of docs/18-kotlin-and-virtual-threads.md. */
@Timeout(value = 120, unit = TimeUnit.SECONDS)
class CoroutinesTest {
  /** Each rank is a coroutine; all of them share one thread, so none may block it. */
  private fun onEachRank(nRanks: Int, body: suspend (RankGroup) -> Unit) {
    val job = RankGroup.local(nRanks, JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST))
    try {
      runBlocking {
        withTimeout(60.seconds) { job.map { group -> async { body(group) } }.awaitAll() }
      }
    } finally {
      RankGroup.closeAll(job)
    }
  }

  @Test
  fun shouldSuspendWhileACollectiveRuns() = onEachRank(2) { group ->
    group.device().allocate(4096).use { x ->
      val values = FloatView.of(x)
      for (step in 0 until 100) {
        values.put(0, (group.rank() + step).toFloat())
        group.collectives().sum(x)
        assertEquals((2 * step + 1).toFloat(), values.get(0))
      }
    }
  }

  @Test
  fun shouldAwaitSetUp() = onEachRank(4) { group ->
    val pair = group.split(group.rank() / 2, group.rank()).await().get()
    pair.device().allocate(4).use { x ->
      FloatView.of(x).put(0, 1f)
      pair.collectives().sum(x)
      assertEquals(2f, FloatView.of(x).get(0))
    }
    pair.collectives().barrier().awaitSingleOrNull()
    pair.closeAsync().await()
  }

  @Test
  fun shouldFlowThroughChunks() = onEachRank(2) { group ->
    group.device().allocate(4000).use { x ->
      val call = CollectiveCall.allReduce(x, x, 1000, DataType.FLOAT32, ReduceOp.SUM)
      val counts = group.collectives().chunked(call, 256).asFlow().map { it.count() }.toList()
      assertEquals(listOf(256L, 256L, 256L, 232L), counts)
    }
  }

  @Test
  fun shouldGoOnWhenACoroutineStopsWaiting() = onEachRank(2) { group ->
    group.device().allocate(4).use { x ->
      FloatView.of(x).put(0, 1f)
      if (group.rank() == 0) {
        // Rank 1 is not there yet: this ends the wait of rank 0, not the all-reduce.
        assertNull(withTimeoutOrNull(50.milliseconds) { group.collectives().sum(x).let { true } })
        group.bootstrap().send(1, 7, ByteArray(1), soon()).await()
      } else {
        group.bootstrap().recv(0, 7, soon()).await()
        group.collectives().sum(x)
      }
      group.collectives().barrier().awaitSingleOrNull()
      assertEquals(2f, FloatView.of(x).get(0))
    }
  }

  @Test
  fun shouldThrowWhatFailedInACoroutine() = onEachRank(2) { group ->
    group.device().allocate(4).use { x ->
      if (group.rank() == 0) {
        val failure = runCatching { group.collectives().sum(x) }.exceptionOrNull()
        assertEquals(1, (failure as FluxCclException).rank())
      } else {
        group.bootstrap().abort(RemoteFailure(1, "rank 1 plays dead"))
      }
    }
  }

  @Test
  fun shouldMatchByNameInAnyOrderOfCoroutines() = onEachRank(2) { group ->
    val named = group.collectives().named().await()
    coroutineScope {
      val numbers = if (group.rank() == 0) 0 until 100 else 99 downTo 0
      val sums = numbers.map { i ->
        async { named.of("number $i").allReduce(i.toLong(), ReduceOp.SUM).awaitSingle() - 2 * i }
      }
      assertEquals(List(100) { 0L }, sums.awaitAll())
    }
    named.barrier("end").awaitSingleOrNull()
    named.close()
  }

  @Test
  fun shouldRunOnAnyDispatcher() = onEachRank(2) { group ->
    group.device().allocate(4).use { x ->
      FloatView.of(x).put(0, 1f)
      withContext(Dispatchers.Default) { group.collectives().sum(x) }
      assertEquals(2f, FloatView.of(x).get(0))
    }
  }

  private fun soon() = Deadline.after(java.time.Duration.ofSeconds(30))
}
