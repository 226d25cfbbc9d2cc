// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.proxy;

import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.List;
import org.agrona.concurrent.AtomicBuffer;

/** Records the order of the host's accesses to pinned memory as lines "method offset". */
final class RecordingDevice extends DirectMemoryDevice {
  private final List<String> calls;

  RecordingDevice(List<String> calls) {
    this.calls = calls;
  }

  @Override
  AtomicBuffer view(AtomicBuffer memory) {
    return (AtomicBuffer)
        Proxy.newProxyInstance(
            getClass().getClassLoader(),
            new Class<?>[] {AtomicBuffer.class},
            (self, method, args) -> {
              calls.add(method.getName() + " " + args[0]);
              try {
                return method.invoke(memory, args);
              } catch (InvocationTargetException e) {
                throw e.getCause();
              }
            });
  }
}
