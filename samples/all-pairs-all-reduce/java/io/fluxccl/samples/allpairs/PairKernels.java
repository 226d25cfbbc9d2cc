// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/** The kernels, on whichever device. */
interface PairKernels extends AutoCloseable {
  /** Adds the peers' chunks in a buffer's scratch to this rank's own. */
  Mono<Void> addChunks(int buffer);

  /** Enqueues the all-reduce of a buffer, in one kernel. */
  void enqueueAllPairs(int buffer);

  /** Completes when everything enqueued is done. */
  Mono<Void> completion();

  /** Returns the number of buffers. */
  int buffers();

  /** One kernel a buffer, all enqueued at once. */
  default Mono<Void> allPairsOfAll() {
    return Flux.range(0, buffers()).doOnNext(this::enqueueAllPairs).then(completion());
  }

  @Override
  default void close() {}
}
