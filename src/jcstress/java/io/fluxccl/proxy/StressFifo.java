// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import io.fluxccl.device.AbortFlag;

/** A ring of its own for each round of a stress test; freed by the test's arbiter. */
abstract class StressFifo {
  private final DirectMemoryDevice device = new DirectMemoryDevice();
  private final AbortFlag abort = new AbortFlag(device);
  final Fifo fifo;
  final FifoDeviceHandle producer;

  StressFifo(int size) {
    fifo = new Fifo(device, size);
    producer = fifo.deviceHandle(abort);
  }

  /** A payload whose words tell each other: a torn or half-seen trigger fails {@link #take()}. */
  final long push(long value) {
    return producer.push(value, ~value);
  }

  /** The value of the next trigger: 0 when there is none, -1 when its words do not match. */
  final long take() {
    if (!fifo.poll()) {
      return 0;
    }
    long first = fifo.first();
    boolean whole = fifo.second() == (~first & Long.MAX_VALUE);
    fifo.pop();
    return whole ? first : -1;
  }

  final void free() {
    fifo.close();
    abort.close();
  }
}
