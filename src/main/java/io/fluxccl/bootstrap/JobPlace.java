// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.JoinRequest.Kind;
import io.fluxccl.bootstrap.Roster.Contact;
import io.fluxccl.concurrent.BlockingTasks;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.time.Duration;
import java.util.LinkedHashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.Predicate;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The addresses of a job, and the place that this process requests in it.
 *
 * @param size the number of ranks of a full group
 * @param addresses at which newcomers ask for the job; one or more
 * @param key of all connections
 * @param least the fewest ranks of a later group
 * @param replacementTimeout the time that a smaller group waits for more ranks
 * @param rootRank the rank that listens at the address in a first join, or -1
 */
record JobPlace(
    Kind kind,
    int rank,
    int size,
    List<RootAddress> addresses,
    SessionKey key,
    int least,
    Duration replacementTimeout,
    int rootRank) {
  private static final long RESOLVE_RETRY_NANOS = TimeUnit.MILLISECONDS.toNanos(250);
  private static final Logger LOG = LoggerFactory.getLogger(JobPlace.class);

  /** Returns the place of a rank in a group that forms once. */
  static JobPlace fixed(int rank, int size, List<RootAddress> addresses, SessionKey key) {
    return new JobPlace(Kind.FIXED, rank, size, addresses, key, size, Duration.ZERO, 0);
  }

  /** Returns the place of a rank in the group of an id. */
  static JobPlace fixed(int rank, int size, UniqueId id) {
    // An interface's number of the host that made the id means another interface here.
    String host = id.address().getAddress().getHostAddress().replaceFirst("%.*", "");
    RootAddress address = new RootAddress(null, host, id.address().getPort());
    return new JobPlace(
        Kind.FIXED,
        rank,
        size,
        List.of(address),
        SessionKey.of(id.secret()),
        size,
        Duration.ZERO,
        FluxCclException.NO_RANK);
  }

  /**
   * Returns the place of a process in a job that heals.
   *
   * @throws InvalidUsage if there is no address, or {@code least} is out of range
   */
  static JobPlace healing(
      RankEnvironment place, BootstrapOptions options, int least, Duration replacementTimeout) {
    if (least < 1 || least > place.nRanks()) {
      throw InvalidUsage.of("leastRanks=%s of nRanks=%s", least, place.nRanks());
    }
    if (place.uniqueId().isPresent()) {
      throw new InvalidUsage(
          "generations need an address, which any process can take over, not a unique id;"
              + " set FLUXCCL_ADDR and FLUXCCL_SECRET");
    }
    return new JobPlace(
        Kind.HEALING,
        place.rank(),
        place.nRanks(),
        RootAddress.parseList(place.requireAddress()),
        SessionKey.of(options.secret().or(place::secret), place.jobIdentity()),
        least,
        Deadline.after(replacementTimeout).timeout(),
        FluxCclException.NO_RANK);
  }

  String describe() {
    return rank < 0 ? "the root" : "rank " + rank + " of " + size;
  }

  JoinRules rules(BootstrapOptions options) {
    Duration liveness = Deadline.after(options.livenessTimeout()).timeout();
    return new JoinRules(options.heartbeatInterval(), liveness);
  }

  JoinRequest request(Kind wanted, Duration limit, Map<String, String> settings) {
    return new JoinRequest(wanted, rank, size, least, replacementTimeout, limit, settings);
  }

  /**
   * Finds the IP addresses of the job. Blocks.
   *
   * @param unknown is called with the reason while the name of a host is unknown; returns whether
   *     the caller still waits
   * @throws InvalidUsage if an address can't be used
   */
  Set<InetSocketAddress> resolve(BootstrapOptions options, Predicate<InvalidUsage> unknown) {
    // All at once: a name server may take seconds for each.
    List<CompletableFuture<InetAddress>> ips =
        addresses.stream()
            .map(
                each ->
                    CompletableFuture.supplyAsync(
                        () -> resolve(each, unknown), BlockingTasks.EXECUTOR))
            .toList();
    Set<InetSocketAddress> found = new LinkedHashSet<>();
    for (int i = 0; i < addresses.size(); i++) {
      InetAddress ip = joined(ips.get(i));
      checkTrusted(ip, addresses.get(i), options);
      found.add(new InetSocketAddress(ip, addresses.get(i).port()));
    }
    return found;
  }

  private static InetAddress joined(CompletableFuture<InetAddress> ip) {
    try {
      return ip.join();
    } catch (CompletionException e) {
      throw FluxCclException.from(e);
    }
  }

  /** Under orchestrators a name may get its address later than this process is started. */
  private InetAddress resolve(RootAddress address, Predicate<InvalidUsage> unknown) {
    while (true) {
      try {
        return address.resolve();
      } catch (InvalidUsage e) {
        if (!unknown.test(e)) {
          throw e;
        }
        LOG.warn("{}: {}, so far", describe(), e.getMessage());
        LockSupport.parkNanos(RESOLVE_RETRY_NANOS);
      }
    }
  }

  /** Returns the local address of connections, or null for any. */
  InetAddress from(BootstrapOptions options) {
    return addresses.stream()
        .map(RootAddress::networkInterface)
        .filter(Objects::nonNull)
        .findFirst()
        .or(options::networkInterface)
        .map(NetworkAddresses::ofInterface)
        .orElse(null);
  }

  /**
   * Refuses an address that others can reach, unless there is a secret or the options allow none.
   */
  void checkTrusted(InetAddress ip, RootAddress address, BootstrapOptions options) {
    if (key.guarded() || ip.isLoopbackAddress()) {
      return;
    }
    if (!options.insecure()) {
      throw InvalidUsage.of(
          "address=%s can be reached by others, and there is no secret; set %s or"
              + " BootstrapOptions.secret, or allow it by BootstrapOptions.insecure",
          address, JobSecret.VARIABLE);
    }
    LOG.warn(
        "{}: no secret at {}: any process that reaches the port can join", describe(), address);
  }

  /** Returns the refusal of a group with a member that others can reach, if there is no secret. */
  Optional<InvalidUsage> refusal(Roster roster, BootstrapOptions options) {
    boolean isTrusted = key.guarded() || options.insecure();
    return roster.members().stream()
        .map(Contact::address)
        .filter(each -> !isTrusted && !each.getAddress().isLoopbackAddress())
        .findFirst()
        .map(each -> InvalidUsage.of("%s is no loopback address, and there is no secret", each));
  }
}
