// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import java.time.Duration;
import java.util.concurrent.CompletableFuture;
import reactor.core.publisher.Flux;
import reactor.core.publisher.Mono;

/**
 * The host moves the bytes: write, flush, barrier. After a flush, the sender's bytes have arrived;
 * only after the barrier have those of all ranks arrived.
 */
final class HostSide {
  private static final Duration TIMEOUT = Duration.ofSeconds(30);

  private final Mesh mesh;
  private final PairKernels kernels;

  HostSide(Mesh mesh, PairKernels kernels) {
    this.mesh = mesh;
    this.kernels = kernels;
  }

  /** Everything, one buffer after the other, without blocking a thread. */
  Mono<Void> allReduce() {
    return Flux.range(0, mesh.buffers.size()).concatMap(this::allReduce).then();
  }

  private Mono<Void> allReduce(int buffer) {
    return mesh.barrier()
        .then(
            write(
                buffer, peer -> mesh.bytes + mesh.rank * mesh.chunk(), peer -> peer * mesh.chunk()))
        .then(mesh.barrier())
        .then(kernels.addChunks(buffer))
        .then(write(buffer, peer -> mesh.rank * mesh.chunk(), peer -> mesh.rank * mesh.chunk()))
        .then(mesh.barrier());
  }

  private interface Offset {
    long of(int peer);
  }

  private Mono<Void> write(int buffer, Offset target, Offset source) {
    return Mono.defer(
        () -> {
          RegisteredMemory mine = mesh.local.get(buffer);
          CompletableFuture<?>[] flushes =
              mesh.connections.entrySet().stream()
                  .map(
                      link -> {
                        int peer = link.getKey();
                        Connection connection = link.getValue();
                        return connection
                            .write(
                                mesh.remote.get(buffer).get(peer),
                                target.of(peer),
                                mine,
                                source.of(peer),
                                mesh.chunk())
                            .flush(TIMEOUT);
                      })
                  .toArray(CompletableFuture<?>[]::new);
          return Mono.fromFuture(CompletableFuture.allOf(flushes));
        });
  }
}
