// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceView;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.stream.IntStream;
import reactor.core.publisher.Mono;
import reactor.core.publisher.MonoSink;

/**
 * Collectives that match by name instead of by order, as cold Monos. Any thread of a rank may
 * subscribe to them at any time and in any order, also to many at once: an operation begins when
 * every rank has subscribed to its name. So {@code flatMap} over operations is right, where ready
 * operations come in another order on each rank:
 *
 * <pre>{@code
 * try (NamedCollectives named = rank.collectives().named().join()) {
 *   Flux.fromIterable(gradients)
 *       .flatMap(each -> each.whenReady().then(named.allReduce(each.name(), each.view(), AVG)))
 *       .then();
 * }
 * }</pre>
 *
 * <p>A subscription to a name matches the next one of the other ranks. Rank 0 decides the order in
 * which all ranks begin their operations. They run on a lane of their own with the options of the
 * lane that it was opened from; {@code abortOnCancel} does not apply. Ranks of a host agree through
 * shared memory, ranks of different hosts over ETHERNET.
 *
 * <p>A name to which a rank has not subscribed within the time limit of the options fails with
 * {@link io.fluxccl.Timeout} on the ranks that have; the error lists both. If operations of a name
 * differ between ranks, they fail with {@link InvalidUsage} that shows both. Neither ends the job:
 * a rank that subscribes later gets the same error, or matches the operation if the others have
 * repeated it. A buffer that is closed after the subscription, and before the operation begins,
 * aborts the job. Cancelling detaches the subscriber, as with {@link Collectives}: this rank's part
 * runs when the other ranks are ready, so its buffers remain in use until then.
 *
 * <p>{@code flatMap} subscribes to 256 sources at first. Give it a higher concurrency if ranks are
 * ready for more names, in different orders.
 */
@Experimental
public final class NamedCollectives implements AutoCloseable {
  private final Lane lane;
  private final NamedAgent agent;

  private NamedCollectives(Lane lane, NamedAgent agent) {
    this.lane = lane;
    this.agent = agent;
    Communicator communicator = lane.communicator;
    agent.start();
    communicator
        .inFlight(agent.ended())
        .exceptionally(
            reason -> {
              agent.fail(FluxCclException.from(reason));
              communicator.closed().thenRun(this::close);
              return null;
            });
  }

  /** Opens the links between rank 0 and the others, which no rank uses before all have done so. */
  static CompletableFuture<NamedCollectives> open(Lane lane) {
    Communicator communicator = lane.communicator;
    int rank = lane.peers.rank();
    int nRanks = lane.peers.nRanks();
    int tag = lane.options.tag();
    int[] peers = rank == 0 ? IntStream.range(1, nRanks).toArray() : new int[] {0};
    Deadline deadline = Deadline.after(lane.options.setupTimeout().orElse(lane.options.timeout()));
    long bytes = (long) Math.max(1, peers.length) * NamedLink.PART_BYTES;
    DeviceBuffer[] buffer = new DeviceBuffer[1];
    RegisteredMemory[] memory = new RegisteredMemory[1];
    AutoCloseable own = () -> Closing.all(memory[0], buffer[0]);
    return communicator
        .exchange(
            tag,
            "named(tag=" + tag + ")",
            () -> {
              TransportFlags flags = TransportFlags.of(Transport.SHM);
              for (int peer : peers) {
                flags = flags.with(transport(lane, peer));
              }
              buffer[0] = communicator.hostDevice().allocate(bytes);
              memory[0] = communicator.registerMemory(buffer[0], flags);
              return new byte[0];
            },
            deadline)
        .thenCompose(
            registered ->
                communicator.setup(
                    deadline,
                    () -> {
                      List<CompletableFuture<NamedLink>> links = new ArrayList<>();
                      for (int part = 0; part < peers.length; part++) {
                        links.add(link(lane, buffer[0], memory[0], part, peers[part]));
                      }
                      return links;
                    }))
        .thenCompose(
            links -> communicator.exchange(tag, new byte[0], deadline).thenApply(all -> links))
        .thenApply(
            links -> {
              List<NamedLink> ready = links.stream().map(CompletableFuture::join).toList();
              return new NamedCollectives(lane, new NamedAgent(lane, ready, own));
            })
        .whenCompleteAsync(
            PeerConnections.onFailure(() -> Closing.all(own, lane)), BlockingTasks.EXECUTOR);
  }

  /** Returns the transport by which two ranks agree: one that reaches memory of the host. */
  private static Transport transport(Lane lane, int peer) {
    if (lane.options.transport().filter(Transport.ETHERNET::equals).isPresent()) {
      return Transport.ETHERNET;
    }
    List<Integer> hosts = lane.peers.topology().hostOf();
    boolean isNear = hosts.get(peer).equals(hosts.get(lane.peers.rank()));
    return isNear ? Transport.SHM : Transport.ETHERNET;
  }

  private static CompletableFuture<NamedLink> link(
      Lane lane, DeviceBuffer buffer, RegisteredMemory own, int part, int peer) {
    Communicator communicator = lane.communicator;
    int tag = lane.options.tag();
    EndpointConfig config = EndpointConfig.of(transport(lane, peer));
    CompletableFuture<Connection> connection = communicator.connectOnSetup(peer, tag, config);
    communicator.sendMemoryOnSetup(own, peer, tag);
    int remotePart = Math.max(0, lane.peers.rank() - 1);
    return communicator
        .recvMemoryOnSetup(peer, tag)
        .thenCombine(
            connection,
            (remote, made) -> new NamedLink(made, buffer, own, part, remote, remotePart));
  }

  /**
   * Returns the operations of a name.
   *
   * @param name not empty, at most 96 bytes in UTF-8
   * @return operations that begin when every rank has subscribed to them; a name stands for one
   *     operation, called any number of times
   * @throws InvalidUsage if the name is empty or too long
   */
  public CollectiveOperations<Mono<Void>> of(String name) {
    InvalidUsage.requireNonNull(name, "named collectives", "name");
    int bytes = name.getBytes(StandardCharsets.UTF_8).length;
    if (bytes == 0 || bytes > NamedAgent.MOST_NAME_BYTES) {
      throw InvalidUsage.of(
          "named collectives: name='%s' has %s bytes; give 1 to %s",
          name, bytes, NamedAgent.MOST_NAME_BYTES);
    }
    return new Operations(name);
  }

  private final class Operations implements CollectiveOperations<Mono<Void>> {
    private final String name;

    Operations(String name) {
      this.name = name;
    }

    @Override
    public RankTopology topology() {
      return lane.peers.topology();
    }

    @Override
    public Mono<Void> enqueue(CollectiveCall call) {
      CallChecks.requireBuffers(call, topology());
      if (!call.collective().isByAll()) {
        throw InvalidUsage.of("named call '%s': %s; call it without a name", name, call);
      }
      return lane.published(Mono.create(sink -> submit(call, sink)));
    }

    private void submit(CollectiveCall call, MonoSink<Void> sink) {
      try {
        lane.algorithms.check(call, false);
      } catch (RuntimeException refusal) {
        sink.error(refusal); // no rank counts on it yet
        return;
      }
      agent.submit(new NamedCall(name, call, sink, lane.limitNs));
    }
  }

  /** Replaces a view's elements by the combination of all ranks'. */
  public Mono<Void> allReduce(String name, DeviceView view, ReduceOp op) {
    return of(name).allReduce(view, op);
  }

  /** Completes when every rank has subscribed to this name. */
  public Mono<Void> barrier(String name) {
    return of(name).barrier();
  }

  /**
   * Leaves: operations that some rank has not subscribed to fail with {@link io.fluxccl.Aborted}
   * that names this rank, and so do all later ones. Others continue. Waits for nothing. Idempotent.
   */
  @Override
  public void close() {
    agent.leave();
  }

  /** Returns a future that completes when all is freed after {@link #close}. */
  CompletableFuture<Void> ended() {
    return agent.ended();
  }
}
