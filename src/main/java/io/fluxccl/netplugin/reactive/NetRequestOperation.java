// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.reactive;

import io.fluxccl.Deadline;
import io.fluxccl.netplugin.NetRequest;
import java.util.function.Function;
import java.util.function.Supplier;
import reactor.core.publisher.MonoSink;

/** An operation that is complete when a request of the plugin is done. */
final class NetRequestOperation<T> extends NetOperation<T> {
  private final Supplier<NetRequest> post;
  private final Function<NetRequest, T> result;
  private final boolean isDoneWithoutRequest;
  private NetRequest request;

  /**
   * Creates an operation.
   *
   * @param post posts it; returns the request or null
   * @param result returns the result of the request, which is done
   * @param isDoneWithoutRequest whether null means that nothing is left to do; otherwise the
   *     operation is posted again
   */
  NetRequestOperation(
      Object lane,
      Supplier<String> description,
      Deadline deadline,
      MonoSink<T> sink,
      Supplier<NetRequest> post,
      Function<NetRequest, T> result,
      boolean isDoneWithoutRequest) {
    super(lane, description, deadline, sink);
    this.post = post;
    this.result = result;
    this.isDoneWithoutRequest = isDoneWithoutRequest;
  }

  @Override
  T poll() {
    if (request == null) {
      request = post.get();
      if (request == null && isDoneWithoutRequest) {
        return result.apply(null);
      }
    }
    return request != null && request.test() ? result.apply(request) : null;
  }

  @Override
  boolean hasBegun() {
    return request != null;
  }
}
