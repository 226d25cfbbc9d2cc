// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.semaphore;

import static io.fluxccl.semaphore.SemaphoreDescriptor.INBOUND_OFFSET;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.IdleBackoff;
import io.fluxccl.concurrent.UseCount;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.EnumSet;
import java.util.Set;
import java.util.concurrent.atomic.AtomicLong;
import org.agrona.concurrent.IdleStrategy;
import reactor.core.publisher.Mono;

/**
 * A semaphore from host to host: the host signals through the connection, after all its earlier
 * posts there, and the peer's host waits. Its values are in memory of the host, even if the
 * communicator's device is a GPU. Works over SHM, ETHERNET, NET and IB0 to IB7, but not over IB
 * with a GPU that does not order writes of RDMA devices. CUDA_IPC reaches no memory of the host.
 * Build one at both ends of the connection, then call {@code setup()}. Signals by one thread at a
 * time, waits by one thread at a time.
 */
public final class Host2HostSemaphore implements AutoCloseable {
  private static final Set<Transport> RDMA = EnumSet.range(Transport.IB0, Transport.IB7);
  private static final Duration POLL_INTERVAL = Duration.ofMillis(1);
  private static final long SPIN_MICROS = 2;
  private static final long YIELD_MICROS = 100;
  private static final long SHORTEST_NAP_MICROS = 1;
  private static final long LONGEST_NAP_MICROS = 100;

  private final SemaphoreState state;
  private final AtomicLong outbound = new AtomicLong();
  private long expected;

  /** Threads that poll the values, and this semaphore until it is closed; the last one frees. */
  private final UseCount users;

  /**
   * Queues the exchange of the inbound values.
   *
   * @param communicator whose {@code setup()} completes it
   * @param connection one of its connections
   * @throws InvalidUsage if the connection's transport reaches no memory of the host, or is RDMA
   *     and the GPU does not order its writes
   */
  public Host2HostSemaphore(Communicator communicator, Connection connection) {
    if (connection.transport() == Transport.CUDA_IPC) {
      throw InvalidUsage.of(
          "Host2HostSemaphore over %s: CUDA_IPC reaches no memory of the host; connect the ranks by"
              + " SHM, ETHERNET, NET or RDMA, too",
          connection);
    }
    // The words are in memory of the host, and data may be in that of a GPU. A reliable queue pair
    // executes its writes in order, and PCIe keeps the order of posted writes only on one path: so
    // a word may be visible to the host before the data is to the GPU. A GPU that orders remote
    // writes for its own work needs no flush; for another one the host would have to flush after
    // each word (cuFlushGPUDirectRDMAWrites, or a read by the network device as in NCCL's iflush).
    // The acquire in poll() orders the host's reads only.
    if (RDMA.contains(connection.transport()) && !communicator.device().ordersRemoteWrites()) {
      throw InvalidUsage.of(
          "Host2HostSemaphore over %s: %s does not order writes of RDMA devices"
              + " (GPU_DIRECT_RDMA_WRITES_ORDERING), so its kernels could read old data; connect"
              + " by ETHERNET, or use a communicator of the host device for memory of the host",
          connection, communicator.device().description());
    }
    this.state = new SemaphoreState(communicator, connection, communicator.hostDevice());
    this.users = new UseCount(state::close);
  }

  /** The connection it belongs to. */
  public Connection connection() {
    return state.connection;
  }

  /**
   * Signals the peer: its wait returns when everything posted on the connection before is there.
   *
   * @throws IllegalStateException before {@code setup()} was called
   * @throws FluxCclException if the connection has failed
   */
  public void signal() {
    state.connection.updateAndSync(
        state.remote(), state.remoteOffset, outbound, outbound.get() + 1);
  }

  /**
   * Takes the peer's next signal if it is there; otherwise returns false and takes nothing.
   *
   * @throws InvalidUsage if this semaphore is closed
   */
  public boolean poll() {
    if (!users.enter()) {
      throw InvalidUsage.of("the semaphore to rank %s is closed", state.peer());
    }
    try {
      // Pairs with the release with which the transport stores the peer's signal.
      if (HostMemory.getLongAcquire(state.address(INBOUND_OFFSET)) <= expected) {
        return false;
      }
      expected++;
      return true;
    } finally {
      users.release();
    }
  }

  /**
   * Waits for the peer's next signal, blocking the calling thread: first spinning, then parking.
   *
   * @param timeout how long
   * @throws Timeout naming the peer, when time is up; the signal can still be waited for
   * @throws FluxCclException the communicator's failure
   */
  public void await(Duration timeout) {
    Deadline deadline = Deadline.after(timeout);
    IdleStrategy idle =
        new IdleBackoff(SPIN_MICROS, YIELD_MICROS, SHORTEST_NAP_MICROS, LONGEST_NAP_MICROS);
    while (!arrived(deadline)) {
      idle.idle();
    }
  }

  /**
   * Waits for the peer's next signal without blocking a thread, polling every millisecond.
   *
   * @param timeout how long
   * @return completes when the signal was taken; with {@link Timeout} naming the peer, or the
   *     communicator's failure
   */
  public Mono<Void> arrival(Duration timeout) {
    return Mono.defer(
        () -> {
          Deadline deadline = Deadline.after(timeout);
          return Mono.fromCallable(() -> arrived(deadline))
              .filter(Boolean::booleanValue)
              .repeatWhenEmpty(Integer.MAX_VALUE, empties -> empties.delayElements(POLL_INTERVAL))
              .then();
        });
  }

  /** Checks the time limit where the signal is taken, so that no signal is taken and dropped. */
  private boolean arrived(Deadline deadline) {
    if (poll()) {
      return true;
    }
    FluxCclException failure = reasonToGiveUp();
    if (failure != null) {
      throw failure;
    }
    if (deadline.expired()) {
      throw timedOut(deadline.timeout());
    }
    return false;
  }

  private FluxCclException reasonToGiveUp() {
    FluxCclException ofConnection = state.connection.failure();
    return ofConnection != null ? ofConnection : state.communicator.failure();
  }

  private Timeout timedOut(Duration timeout) {
    return Timeout.of(
        state.peer(),
        "wait for a signal of rank %s (tag %s, %s): none within %s ms",
        state.peer(),
        state.connection.tag(),
        state.connection.transport(),
        timeout.toMillis());
  }

  /** Frees the values; a thread that still waits gets InvalidUsage. Idempotent. */
  @Override
  public void close() {
    if (users.beginClose()) {
      users.release();
    }
  }
}
