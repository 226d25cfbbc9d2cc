// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.device.AbortFlag;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.junit.jupiter.api.AfterEach;

/** A proxy with its ring and a producer; a closed proxy must hold no memory. */
abstract class ProxyFixture {
  final DirectMemoryDevice device = new DirectMemoryDevice();
  final AbortFlag abort = new AbortFlag(device);
  final Fifo fifo;
  final FifoDeviceHandle producer;

  /** Triggers that failed, as "position:first,second", and "loop" for other failures. */
  final List<String> failed = new CopyOnWriteArrayList<>();

  final List<Throwable> errors = new CopyOnWriteArrayList<>();
  Proxy proxy;

  ProxyFixture(int size) {
    fifo = new Fifo(device, size);
    producer = fifo.deviceHandle(abort);
  }

  private final ProxyErrorHandler errorHandler =
      new ProxyErrorHandler() {
        @Override
        public void onTriggerError(long position, long first, long second, Throwable error) {
          failed.add(position + ":" + first + "," + second);
          errors.add(error);
        }

        @Override
        public void onLoopError(Throwable error) {
          failed.add("loop");
          errors.add(error);
        }
      };

  ProxyOptions.Builder options() {
    return ProxyOptions.builder().errorHandler(errorHandler);
  }

  void proxy(ProxyHandler handler, ProxyOptions.Builder options) {
    proxy = new Proxy(fifo, handler, options.build());
  }

  /** Pushes triggers with the words i and 10 + i. */
  void push(int count) {
    for (int i = 0; i < count; i++) {
      producer.push(i, 10 + i);
    }
  }

  @AfterEach
  void shouldHaveFreedEverything() {
    proxy.close();
    proxy.close();
    abort.close();
    assertThat(device.openBuffers()).isZero();
  }
}
