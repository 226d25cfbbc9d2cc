package io.fluxccl.collective;

import io.fluxccl.Deadline;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.transport.Transport;
import java.time.Duration;
import java.util.Optional;

/**
 * How an all-reduce is prepared and run. Immutable; {@code with…} methods give a changed copy.
 * Every rank must use the same transport and tag.
 *
 * @param transport to use between all ranks; empty: mapped memory inside a host (SHM, CUDA_IPC on
 *     GPUs) and ETHERNET between hosts
 * @param tag of its connections, to keep several all-reduces of one communicator apart
 * @param timeout how long preparing, and each run, may take
 * @param threads of the kernel on the host device; 0: one for each core that this rank has to
 *     itself, at least one. GPUs choose for themselves
 */
public record AllReduceOptions(
    Optional<Transport> transport, int tag, Duration timeout, int threads) {
  /** The best transport for each peer, tag 0, 30 s. */
  public static final AllReduceOptions DEFAULT =
      new AllReduceOptions(Optional.empty(), 0, Deadline.DEFAULT_TIMEOUT, 0);

  /** Refuses a time-out that is not positive and a number of threads that no block can have. */
  public AllReduceOptions {
    if (timeout.isNegative() || timeout.isZero()) {
      throw new InvalidUsage("timeout=" + timeout + "; give more than zero");
    }
    if (threads < 0 || threads > HostKernel.MAX_BLOCK_DIM) {
      throw new InvalidUsage(
          "threads=" + threads + "; give 0 for the default, or up to " + HostKernel.MAX_BLOCK_DIM);
    }
  }

  /** These options with one transport for all peers. */
  public AllReduceOptions withTransport(Transport only) {
    return new AllReduceOptions(Optional.of(only), tag, timeout, threads);
  }

  /** These options with another tag. */
  public AllReduceOptions withTag(int newTag) {
    return new AllReduceOptions(transport, newTag, timeout, threads);
  }

  /** These options with another time limit. */
  public AllReduceOptions withTimeout(Duration newTimeout) {
    return new AllReduceOptions(transport, tag, newTimeout, threads);
  }

  /** These options with a number of kernel threads. */
  public AllReduceOptions withThreads(int newThreads) {
    return new AllReduceOptions(transport, tag, timeout, newThreads);
  }
}
