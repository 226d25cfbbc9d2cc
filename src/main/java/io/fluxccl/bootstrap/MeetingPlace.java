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
 * The address, key and options of a rendezvous, and the failed job whose ranks take part, if any.
 *
 * @param rank the rank that this process requests, or has in the failed job
 * @param nRanks the number of ranks of a full generation, or of the failed job
 * @param failed the failed job, if only its ranks take part; else null
 * @param failedGeneration the generation number of the failed job
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
   * Returns the rendezvous of a job's generations.
   *
   * @param least the fewest ranks of a generation
   */
  static MeetingPlace of(RankEnvironment place, BootstrapOptions options, int least) {
    if (least < 1 || least > place.nRanks()) {
      throw InvalidUsage.of("leastRanks=%s of nRanks=%s", least, place.nRanks());
    }
    if (place.uniqueId().isPresent()) {
      throw new InvalidUsage(
          "generations need an address, which any process can take over, not a unique id;"
              + " set FLUXCCL_ADDR and FLUXCCL_SECRET");
    }
    SessionKey key = SessionKey.of(options.secret().or(place::secret), place.jobIdentity());
    RootAddress address = RootAddress.parse(place.requireAddress());
    return new MeetingPlace(address, key, place.rank(), place.nRanks(), options, null, 0);
  }

  /** Returns the rendezvous of a failed job's ranks: the address where they registered. */
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

  /** Returns whether a generation is the failed job, and not one that its ranks formed later. */
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
   * Returns the failure of this rank if other ranks have left the failed job in good order;
   * otherwise empty. On the event loop.
   *
   * @param lost ranks for which the rendezvous does not wait
   */
  CompletableFuture<Optional<Aborted>> refusal(long generation, List<Integer> lost) {
    return isFailed(generation)
        ? failed
            .departures()
            .thenApply(
                left -> left.filter(each -> !lost.contains(each)).findFirst().map(this::goneOn))
        : CompletableFuture.completedFuture(Optional.empty());
  }

  /** Returns the failure of a rank without which the others have continued. */
  Aborted goneOn(int other) {
    return Aborted.of(
        other,
        "%s joined too late: %s left the failed job or continued in a smaller group",
        this,
        other == FluxCclException.NO_RANK ? "the others" : "rank " + other);
  }

  /** Returns the failure of a rank with another secret than the process at the address. */
  InvalidUsage secretMismatch() {
    return InvalidUsage.of(
        "%s reached the job's address %s: %s", this, address, Handshake.SECRETS_DIFFER);
  }

  /**
   * Returns the failure of a wait.
   *
   * @param missing the missing ranks, as far as this process knows
   * @param trouble the reason, if no missing rank is known
   */
  Timeout late(Duration limit, List<Integer> missing, String trouble) {
    long millis = limit.toMillis();
    if (missing.isEmpty()) {
      return Timeout.of(
          FluxCclException.NO_RANK,
          "no generation of the job at %s started within %s ms: %s",
          address,
          millis,
          trouble);
    }
    return failed == null
        ? Timeout.of(
            missing.get(0),
            "no generation of the job at %s started within %s ms: ranks %s of %s did not join;"
                + " start them with this address and secret",
            address,
            millis,
            missing,
            nRanks)
        : Timeout.of(
            missing.get(0),
            "%s: ranks %s of the failed job are alive, but did not join within %s ms",
            this,
            missing,
            millis);
  }

  @Override
  public String toString() {
    return "rank " + rank + " of " + nRanks;
  }
}
