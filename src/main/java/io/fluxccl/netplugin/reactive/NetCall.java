// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import java.util.function.Supplier;
import reactor.core.publisher.MonoSink;

/** An operation that is complete when its one call of the plugin has returned. */
abstract class NetCall<T> extends NetOperation<T> {
  NetCall(Object lane, Supplier<String> description, Deadline deadline, MonoSink<T> sink) {
    super(lane, description, deadline, sink);
  }

  abstract T call() throws Exception;

  @Override
  final T poll() {
    try {
      return call();
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new InvalidUsage("can't be closed: " + e.getMessage(), e);
    }
  }

  @Override
  final boolean hasBegun() {
    return false;
  }
}
