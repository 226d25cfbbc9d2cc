// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.netty.util.NetUtil;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The address of the root at which a rank joins its job, and the key.
 *
 * @param from the local address to use, or null for any
 * @param hosted the root itself, if this process hosts it, with one use counted for this rank; or
 *     null
 * @param rootRank the rank that hosts the root, or -1 when that is not known
 */
record Rendezvous(
    SessionKey key, InetAddress from, InetSocketAddress root, BootstrapRoot hosted, int rootRank) {
  private static final Logger LOG = LoggerFactory.getLogger(Rendezvous.class);
  static final long BIND_RETRY_NANOS = TimeUnit.SECONDS.toNanos(3);
  private static final long BIND_RETRY_MILLIS = 50;
  private static final long OPEN_SECONDS = 10;
  private static final long RESOLVE_RETRY_MILLIS = 250;

  /** The roots that this process hosts for the ids it created. */
  private static final Map<UniqueId, BootstrapRoot> HOSTED = new ConcurrentHashMap<>();

  /** Opens a root in this process. Waits for the port, which takes no noticeable time. */
  static UniqueId create(BootstrapOptions options) {
    byte[] secret = SessionKey.nonce(UniqueId.SECRET_LENGTH);
    InetAddress address =
        options
            .networkInterface()
            .map(NetworkAddresses::ofInterface)
            .orElseGet(NetworkAddresses::reachable);
    BootstrapRoot root = new BootstrapRoot(SessionKey.of(secret), 0, options);
    if (root.loop.inEventLoop()) {
      root.kill();
      throw new InvalidUsage(
          "createUniqueId waits for the port; call it on a thread that is not the bootstrap's");
    }
    CompletableFuture<InetSocketAddress> opened = root.open(new InetSocketAddress(address, 0));
    try {
      UniqueId id = UniqueId.of(opened.orTimeout(OPEN_SECONDS, TimeUnit.SECONDS).join(), secret);
      HOSTED.put(id, root);
      root.ended().thenRun(() -> HOSTED.remove(id));
      return id;
    } catch (RuntimeException e) {
      root.kill();
      throw FluxCclException.from(e);
    }
  }

  /** Returns the root of an id, or null when another process hosts it. */
  static BootstrapRoot hostedFor(UniqueId id) {
    return HOSTED.get(id);
  }

  /** Returns the rendezvous of an id. On the event loop. */
  static Rendezvous of(UniqueId id, BootstrapOptions options) {
    InetAddress from = options.networkInterface().map(NetworkAddresses::ofInterface).orElse(null);
    BootstrapRoot hosted = hostedFor(id);
    if (hosted != null) {
      hosted.use(); // last: if the interface is unknown, no rank would release it
    }
    return new Rendezvous(
        SessionKey.of(id.secret()), from, id.address(), hosted, FluxCclException.NO_RANK);
  }

  /** Returns the IP address of a host; completes on any thread. */
  static CompletableFuture<InetAddress> resolve(RootAddress address) {
    byte[] ip = NetUtil.createByteArrayFromIpAddressString(address.host());
    return ip != null
        ? CompletableFuture.completedFuture(UniqueId.addressOf(ip, 0))
        // A name server may take seconds: not on the event loop.
        : CompletableFuture.supplyAsync(() -> askNameServer(address));
  }

  private static InetAddress askNameServer(RootAddress address) {
    try {
      return InetAddress.getByName(address.host());
    } catch (UnknownHostException e) {
      throw new InvalidUsage("address=" + address + ": the host is unknown", e);
    }
  }

  /**
   * Refuses an address that others can reach, unless there is a secret or the options allow none.
   */
  static InetAddress checkTrusted(
      InetAddress ip, RootAddress address, SessionKey key, BootstrapOptions options, String who) {
    if (key.guarded() || ip.isLoopbackAddress()) {
      return ip;
    }
    if (!options.insecure()) {
      throw InvalidUsage.of(
          "address=%s can be reached by others, and there is no secret; set %s or"
              + " BootstrapOptions.secret, or allow it by BootstrapOptions.insecure",
          address, JobSecret.VARIABLE);
    }
    LOG.warn("{}: no secret at {}: any process that reaches the port can join", who, address);
    return ip;
  }

  /**
   * Finds the rendezvous of an address; rank 0 opens the root there.
   *
   * @param wanted whether the caller still waits for the result
   */
  record Search(
      TcpBootstrap bootstrap,
      BootstrapOptions options,
      SessionKey key,
      RootAddress address,
      BooleanSupplier wanted) {
    /** Begins; completes on the event loop. */
    CompletableFuture<Rendezvous> begin() {
      return resolve(false)
          .thenApplyAsync(
              ip -> checkTrusted(ip, address, key, options, bootstrap.describe()),
              bootstrap.operations::onLoop)
          .thenCompose(this::reach);
    }

    /** Under orchestrators a name may get its address later than this process is started. */
    private CompletableFuture<InetAddress> resolve(boolean again) {
      return Rendezvous.resolve(address)
          .exceptionallyComposeAsync(
              failure -> {
                FluxCclException reason = FluxCclException.from(failure);
                if (!(reason.getCause() instanceof UnknownHostException)
                    || !wanted.getAsBoolean()) {
                  return CompletableFuture.failedFuture(reason);
                }
                bootstrap.hostIsUnknown(reason);
                if (!again) {
                  LOG.warn("{}: {}, so far", bootstrap.describe(), reason.getMessage());
                }
                return after(RESOLVE_RETRY_MILLIS).thenCompose(now -> resolve(true));
              },
              bootstrap.operations::onLoop);
    }

    private CompletableFuture<Rendezvous> reach(InetAddress ip) {
      bootstrap.hostIsUnknown(null);
      String networkInterface =
          address.networkInterface() != null
              ? address.networkInterface()
              : options.networkInterface().orElse(null);
      InetAddress from =
          networkInterface == null ? null : NetworkAddresses.ofInterface(networkInterface);
      InetSocketAddress root = new InetSocketAddress(ip, address.port());
      return bootstrap.rank() == 0
          ? host(from, root, System.nanoTime() + BIND_RETRY_NANOS)
          : CompletableFuture.completedFuture(new Rendezvous(key, from, root, null, 0));
    }

    private CompletableFuture<Rendezvous> host(InetAddress from, InetSocketAddress at, long until) {
      BootstrapRoot root = new BootstrapRoot(key, bootstrap.nRanks(), options);
      return root.open(at)
          .thenApply(
              bound -> {
                root.use();
                return new Rendezvous(key, from, bound, root, 0);
              })
          .exceptionallyCompose(failure -> again(failure, from, at, until));
    }

    /** An earlier run may be about to release the port. */
    private CompletableFuture<Rendezvous> again(
        Throwable failure, InetAddress from, InetSocketAddress at, long until) {
      if (!wanted.getAsBoolean() || System.nanoTime() - until >= 0) {
        return CompletableFuture.failedFuture(FluxCclException.from(failure));
      }
      return after(BIND_RETRY_MILLIS).thenCompose(now -> host(from, at, until));
    }

    private CompletableFuture<Void> after(long millis) {
      CompletableFuture<Void> later = new CompletableFuture<>();
      bootstrap.loop.schedule(() -> later.complete(null), millis, TimeUnit.MILLISECONDS);
      return later;
    }
  }
}
