// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.ReduceOp;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.BlockingTasks;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceView;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.function.Supplier;
import java.util.stream.IntStream;
import reactor.core.publisher.Mono;
import reactor.core.publisher.MonoSink;
import reactor.core.scheduler.Scheduler;

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
 * <p>Small all-reduces of one type and operation that are ready together run as one call, and each
 * gets its result in its own buffer. While a few operations of rank 0 are in flight, all-reduces
 * wait for that, so that more of them become ready; otherwise none waits. Within a host results are
 * the same bits as those of separate calls. {@link NamedOptions} has the limits.
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
  final Lane lane;
  final NamedAgent agent;
  private final NamedOptions options;

  private NamedCollectives(Lane lane, NamedOptions options, NamedAgent agent) {
    this.lane = lane;
    this.options = options;
    this.agent = agent;
    Communicator communicator = lane.communicator;
    lane.namedWaits = agent::waits;
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
  static CompletableFuture<NamedCollectives> open(Lane lane, NamedOptions options) {
    return open(lane, options, () -> new NamedBuckets(lane, options));
  }

  static CompletableFuture<NamedCollectives> open(
      Lane lane, NamedOptions options, Supplier<NamedBuckets> makesBuckets) {
    return new Opening(lane, options, makesBuckets).start();
  }

  /** Opens named collectives. Its fields are what it closes if a step fails. */
  private static final class Opening {
    private final Lane lane;
    private final NamedOptions options;
    private final Supplier<NamedBuckets> makesBuckets;
    private final Communicator communicator;
    private final int tag;
    private final int[] peers;
    private final int partBytes;
    private final Deadline deadline;
    private final List<CompletableFuture<? extends AutoCloseable>> parts = new ArrayList<>();
    private final List<CompletableFuture<NamedLink>> links = new ArrayList<>();
    private DeviceBuffer buffer;
    private RegisteredMemory memory;
    private NamedBuckets buckets;

    Opening(Lane lane, NamedOptions options, Supplier<NamedBuckets> makesBuckets) {
      this.lane = lane;
      this.options = options;
      this.makesBuckets = makesBuckets;
      this.communicator = lane.communicator;
      this.tag = lane.options.tag();
      int nRanks = lane.peers.nRanks();
      this.peers = lane.peers.rank() == 0 ? IntStream.range(1, nRanks).toArray() : new int[] {0};
      this.partBytes = NamedLink.partBytes(nRanks);
      this.deadline = Deadline.after(lane.options.setupTimeout().orElse(lane.options.timeout()));
    }

    CompletableFuture<NamedCollectives> start() {
      return communicator
          .exchange(tag, "named(tag=" + tag + ")", this::allocate, deadline)
          .thenAccept(this::requireSameOptions)
          .thenCompose(same -> communicator.setup(deadline, this::connect))
          .thenComposeAsync(connected -> registerBuckets(), BlockingTasks.EXECUTOR)
          .thenCompose(opened -> communicator.exchange(tag, new byte[0], deadline))
          .thenApply(ready -> make())
          .whenCompleteAsync(PeerConnections.onFailure(this::close), BlockingTasks.EXECUTOR);
    }

    /**
     * Allocates this rank's memory of all links and of buckets. If it fails, so do all ranks.
     *
     * @return the options that all ranks must have alike
     */
    private byte[] allocate() {
      TransportFlags flags = TransportFlags.of(Transport.SHM);
      for (int peer : peers) {
        flags = flags.with(transport(lane, peer));
      }
      buffer = communicator.hostDevice().allocate((long) Math.max(1, peers.length) * partBytes);
      memory = communicator.registerMemory(buffer, flags);
      buckets = options.bucketBytes() == 0 ? null : makesBuckets.get();
      return new WireWriter().int64(options.bucketBytes()).toBytes();
    }

    private void requireSameOptions(List<byte[]> all) {
      for (int peer = 0; peer < all.size(); peer++) {
        long bytes = WireReader.ofPeer(all.get(peer), "named", peer).int64("bucketBytes");
        if (bytes != options.bucketBytes()) {
          throw InvalidUsage.of(
              "named collectives: bucketBytes=%d on rank %d, %d on rank %d; give all ranks the"
                  + " same",
              options.bucketBytes(), lane.peers.rank(), bytes, peer);
        }
      }
    }

    private Void connect() {
      for (int part = 0; part < peers.length; part++) {
        links.add(link(peers[part], (long) part * partBytes));
      }
      return null;
    }

    private CompletableFuture<NamedLink> link(int peer, long offset) {
      EndpointConfig config = EndpointConfig.of(transport(lane, peer));
      CompletableFuture<Connection> connection = communicator.connectOnSetup(peer, tag, config);
      communicator.sendMemoryOnSetup(memory, peer, tag);
      CompletableFuture<RegisteredMemory> remote = communicator.recvMemoryOnSetup(peer, tag);
      parts.addAll(List.of(connection, remote));
      long remoteOffset = (long) Math.max(0, lane.peers.rank() - 1) * partBytes;
      DeviceBuffer own = buffer.slice(offset, partBytes);
      return remote.thenCombine(
          connection, (to, made) -> new NamedLink(made, own, memory, offset, to, remoteOffset));
    }

    private CompletableFuture<Void> registerBuckets() {
      return buckets == null ? CompletableFuture.completedFuture(null) : buckets.register(lane);
    }

    private NamedCollectives make() {
      List<NamedLink> ready = links.stream().map(CompletableFuture::join).toList();
      AutoCloseable own = () -> Closing.all(memory, buffer);
      NamedAgent agent = new NamedAgent(lane, options, ready, buckets, own);
      return new NamedCollectives(lane, options, agent);
    }

    private void close() {
      parts.forEach(part -> part.thenAccept(each -> Closing.all(each)));
      Closing.all(memory, buffer, buckets, lane);
    }
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

  /**
   * Returns the operations of a name.
   *
   * @param name not empty, at most 96 bytes in UTF-8
   * @return operations that begin when every rank has subscribed to them; a name stands for one
   *     operation, called any number of times
   * @throws InvalidUsage if the name is empty or too long
   */
  public ReactiveOperations of(String name) {
    InvalidUsage.requireNonNull(name, "named collectives", "name");
    int bytes = name.getBytes(StandardCharsets.UTF_8).length;
    if (bytes == 0 || bytes > NamedAgent.MOST_NAME_BYTES) {
      throw InvalidUsage.of(
          "named collectives: name='%s' has %s bytes; give 1 to %s",
          name, bytes, NamedAgent.MOST_NAME_BYTES);
    }
    return new Operations(name);
  }

  private final class Operations implements ReactiveOperations {
    private final String name;

    Operations(String name) {
      this.name = name;
    }

    @Override
    public RankTopology topology() {
      return lane.peers.topology();
    }

    @Override
    public Device device() {
      return lane.communicator.device();
    }

    @Override
    public Scheduler scheduler() {
      return lane.options.scheduler();
    }

    @Override
    public Mono<Void> enqueue(CollectiveCall call) {
      AlgorithmSelector.requireBuffers(call, topology());
      if (!call.collective().isByAll()) {
        throw InvalidUsage.of("named call '%s': %s; call it without a name", name, call);
      }
      DataType wire = options.wireType(name, call);
      return lane.published(Mono.create(sink -> submit(call, wire, sink)));
    }

    private void submit(CollectiveCall call, DataType wire, MonoSink<Void> sink) {
      try {
        lane.algorithms.check(call, false);
      } catch (RuntimeException | Error refusal) {
        sink.error(refusal); // no rank counts on it yet
        return;
      }
      agent.submit(new NamedCall(name, call, wire, sink, lane.limitNs));
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
   * that names this rank, and so do all later ones. Others continue. If the job fails within a
   * second, as after an exception in {@code RankGroup.run}, that is their failure instead. Waits
   * for nothing. Idempotent.
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
