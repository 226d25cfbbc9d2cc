package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.netty.channel.EventLoop;
import io.netty.util.NetUtil;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.UnknownHostException;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.function.BooleanSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Where a rank goes to meet the others, and with which key.
 *
 * @param from the local address to use, or null for any
 * @param hosted the root itself, when this process hosts it, held by one use; or null
 * @param rootRank the rank that hosts the root, or -1 when nobody knows
 */
record MeetingPoint(
    SessionKey key, InetAddress from, InetSocketAddress root, BootstrapRoot hosted, int rootRank) {
  private static final Logger LOG = LoggerFactory.getLogger(MeetingPoint.class);
  private static final long BIND_RETRY_NANOS = TimeUnit.SECONDS.toNanos(3);
  private static final long BIND_RETRY_MILLIS = 50;

  /** The meeting point of an id. On the event loop. */
  static MeetingPoint of(UniqueId id, BootstrapOptions options) {
    BootstrapRoot hosted = LocalRoots.of(id);
    MeetingPoint meeting =
        new MeetingPoint(
            SessionKey.of(id.secret()),
            options.networkInterface().map(NetworkAddresses::ofInterface).orElse(null),
            id.address(),
            hosted,
            FluxCclException.NO_RANK);
    if (hosted != null) {
      hosted.use(); // last: where there is no such interface, nobody would ever leave it
    }
    return meeting;
  }

  /** Finds the meeting point of an address; at rank 0, makes it. */
  static final class Search {
    private final TcpBootstrap bootstrap;
    private final BootstrapOptions options;
    private final SessionKey key;
    private final RootAddress address;
    private final BooleanSupplier wanted;
    private final CompletableFuture<MeetingPoint> found = new CompletableFuture<>();
    private InetAddress from;

    /**
     * @param wanted whether the search is still worth the effort
     */
    Search(
        TcpBootstrap bootstrap,
        BootstrapOptions options,
        SessionKey key,
        String address,
        BooleanSupplier wanted) {
      this.bootstrap = bootstrap;
      this.options = options;
      this.key = key;
      this.address = RootAddress.parse(address);
      this.wanted = wanted;
    }

    /** Begins; completes on the event loop, where this is called too. */
    CompletableFuture<MeetingPoint> begin() {
      byte[] ip = NetUtil.createByteArrayFromIpAddressString(address.host());
      if (ip != null) {
        guard(() -> resolved(UniqueId.addressOf(ip, 0)));
        return found;
      }
      // A name server may take seconds: not on the event loop.
      CompletableFuture.supplyAsync(this::resolve)
          .whenComplete(
              (resolved, failure) ->
                  bootstrap.onLoop(
                      () -> {
                        if (failure == null) {
                          guard(() -> resolved(resolved));
                        } else {
                          found.completeExceptionally(FluxCclException.from(failure));
                        }
                      }));
      return found;
    }

    private InetAddress resolve() {
      try {
        return InetAddress.getByName(address.host());
      } catch (UnknownHostException e) {
        throw new InvalidUsage("address=" + address + ": the host is unknown", e);
      }
    }

    private void guard(Runnable step) {
      try {
        step.run();
      } catch (RuntimeException e) {
        found.completeExceptionally(FluxCclException.from(e));
      }
    }

    private void resolved(InetAddress ip) {
      if (!key.guarded() && !ip.isLoopbackAddress()) {
        if (!options.insecure()) {
          throw new InvalidUsage(
              "address="
                  + address
                  + " can be reached by others, and there is no secret; set "
                  + JobSecret.VARIABLE
                  + " or BootstrapOptions.secret, or allow it by BootstrapOptions.insecure");
        }
        LOG.warn(
            "{}: no secret at {}: whoever reaches the port can join",
            bootstrap.describe(),
            address);
      }
      String networkInterface =
          address.networkInterface() != null
              ? address.networkInterface()
              : options.networkInterface().orElse(null);
      from = networkInterface == null ? null : NetworkAddresses.ofInterface(networkInterface);
      InetSocketAddress root = new InetSocketAddress(ip, address.port());
      if (bootstrap.rank() == 0) {
        host(root, bootstrap.loop, System.nanoTime() + BIND_RETRY_NANOS);
      } else {
        found.complete(new MeetingPoint(key, from, root, null, 0));
      }
    }

    private void host(InetSocketAddress at, EventLoop loop, long until) {
      BootstrapRoot root = new BootstrapRoot(key, bootstrap.nRanks(), options);
      root.open(at)
          .whenComplete(
              (bound, failure) -> {
                if (failure == null) {
                  root.use();
                  found.complete(new MeetingPoint(key, from, bound, root, 0));
                } else if (!wanted.getAsBoolean() || System.nanoTime() - until >= 0) {
                  found.completeExceptionally(FluxCclException.from(failure));
                } else {
                  // An earlier run may be about to let go of the port.
                  loop.schedule(
                      () -> guard(() -> host(at, loop, until)),
                      BIND_RETRY_MILLIS,
                      TimeUnit.MILLISECONDS);
                }
              });
    }
  }
}
