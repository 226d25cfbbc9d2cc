// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.List;
import java.util.Optional;
import java.util.concurrent.CompletableFuture;

/**
 * Where a {@link Meeting} takes place, and whose it is.
 *
 * @param rank the one that this process wishes, or has in the job that has failed
 * @param nRanks how many a full generation, or that job, has
 * @param failed the job that has failed, if only its ranks meet; else null
 * @param failedGeneration the number of that
 */
record MeetingPlace(
    RootAddress address,
    SessionKey key,
    int rank,
    int nRanks,
    BootstrapOptions options,
    TcpBootstrap failed,
    long failedGeneration) {
  /**
   * Returns the place of a job's generations.
   *
   * @param least the fewest ranks of one
   */
  static MeetingPlace of(RankEnvironment place, BootstrapOptions options, int least) {
    if (least < 1 || least > place.nRanks()) {
      throw InvalidUsage.of("leastRanks=%s of nRanks=%s", least, place.nRanks());
    }
    if (place.uniqueId().isPresent()) {
      throw new InvalidUsage(
          "generations meet at an address, which any process can take over, not at a unique id;"
              + " set FLUXCCL_ADDR and FLUXCCL_SECRET");
    }
    SessionKey key = SessionKey.of(options.secret().or(place::secret), place.jobIdentity());
    RootAddress address = RootAddress.parse(place.requireAddress());
    return new MeetingPlace(address, key, place.rank(), place.nRanks(), options, null, 0);
  }

  /** Returns the place of the ranks of a job that has failed: where they registered. */
  static MeetingPlace of(TcpBootstrap failed, long generation) {
    InetSocketAddress root = failed.root();
    return new MeetingPlace(
        new RootAddress(null, root.getAddress().getHostAddress(), root.getPort()),
        failed.jobKey(),
        failed.rank(),
        failed.nRanks(),
        failed.options(),
        failed,
        generation);
  }

  /** Whether a generation is the job that has failed, and none that its ranks formed since. */
  boolean isFailed(long generation) {
    return failed != null && generation == failedGeneration;
  }

  CompletableFuture<InetAddress> resolve() {
    return failed == null
        ? Rendezvous.resolve(address)
        : CompletableFuture.completedFuture(failed.root().getAddress());
  }

  InetAddress checkTrusted(InetAddress ip) {
    return Rendezvous.checkTrusted(ip, address, key, options, toString());
  }

  /** Returns the local address of connections, or null for any. */
  InetAddress from() {
    return address.networkInterface() == null
        ? null
        : NetworkAddresses.ofInterface(address.networkInterface());
  }

  /**
   * Returns why there is nothing to wait for, if ranks of the job that has failed have left in good
   * order. On the event loop.
   *
   * @param lost ranks that are not waited for
   */
  CompletableFuture<Optional<Aborted>> refusal(long generation, List<Integer> lost) {
    return isFailed(generation)
        ? failed
            .departures()
            .thenApply(
                left -> left.filter(each -> !lost.contains(each)).findFirst().map(this::goneOn))
        : CompletableFuture.completedFuture(Optional.empty());
  }

  /** Returns the failure of a rank without which the others have gone on. */
  Aborted goneOn(int other) {
    return Aborted.of(
        other,
        "%s is late: %s left the job that has failed, or went on without this one",
        this,
        other == FluxCclException.NO_RANK ? "the others" : "rank " + other);
  }

  /** Returns the failure of a rank with another secret than the process at the address. */
  InvalidUsage mistrusted() {
    return InvalidUsage.of(
        "%s reached the job's address %s: %s", this, address, Handshake.SECRETS_DIFFER);
  }

  /**
   * Returns the failure of a wait.
   *
   * @param missing ranks that nobody has come for, as far as is known
   * @param trouble what is known without them
   */
  Timeout late(Duration limit, List<Integer> missing, String trouble) {
    long millis = limit.toMillis();
    if (missing.isEmpty()) {
      return Timeout.of(
          FluxCclException.NO_RANK,
          "no generation of the job at %s began within %s ms: %s",
          address,
          millis,
          trouble);
    }
    return failed == null
        ? Timeout.of(
            missing.get(0),
            "no generation of the job at %s began within %s ms: nobody has come for ranks %s of %s",
            address,
            millis,
            missing,
            nRanks)
        : Timeout.of(
            missing.get(0),
            "%s: the ranks %s of the job that has failed live, but did not come within %s ms",
            this,
            missing,
            millis);
  }

  @Override
  public String toString() {
    return "rank " + rank + " of " + nRanks;
  }
}
