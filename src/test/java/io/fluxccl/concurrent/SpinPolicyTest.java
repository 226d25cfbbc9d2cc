// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.concurrent;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.util.concurrent.CyclicBarrier;
import org.junit.jupiter.api.Test;

class SpinPolicyTest {
  /** Starts and ends waits of several threads at once; prints how often an end was missed. */
  static final class Racing {
    private static final int THREADS = 4;
    private static final int ROUNDS = 20_000;

    public static void main(String[] args) throws Exception {
      // One waiting thread has a core; two are too many.
      SpinPolicy.setProcessesOnHost(Runtime.getRuntime().availableProcessors());
      CyclicBarrier barrier = new CyclicBarrier(THREADS + 1);
      for (int i = 0; i < THREADS; i++) {
        Thread thread = new Thread(() -> race(barrier), "racer");
        thread.setDaemon(true);
        thread.start();
      }
      int stale = 0;
      for (int round = 0; round < ROUNDS; round++) {
        barrier.await();
        barrier.await();
        stale += SpinPolicy.isCrowded() || SpinPolicy.pollsBeforeYield() == 1 ? 1 : 0;
      }
      System.out.println(stale);
    }

    private static void race(CyclicBarrier barrier) {
      try {
        while (true) {
          barrier.await();
          SpinPolicy.enter();
          SpinPolicy.exit();
          barrier.await();
        }
      } catch (Exception e) {
        throw new IllegalStateException(e);
      }
    }
  }

  @Test
  void shouldNotBeCrowdedAfterAllThreadsHaveEndedTheirWaits() {
    try (ProcessRank process = TestJvms.start(Racing.class)) {
      assertThat(process.readLine()).isEqualTo("0");
    }
  }
}
