package io.fluxccl.bootstrap;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;

/** The roots that this process hosts for the ids it made. Thread-safe. */
final class LocalRoots {
  private static final long OPEN_SECONDS = 10;
  private static final Map<UniqueId, BootstrapRoot> BY_ID = new ConcurrentHashMap<>();

  private LocalRoots() {}

  /** Opens a root. Waits for the port, which takes no time worth the name. */
  static UniqueId create(BootstrapOptions options) {
    byte[] secret = SessionKey.nonce(UniqueId.SECRET_LENGTH);
    InetAddress address =
        options
            .networkInterface()
            .map(NetworkAddresses::ofInterface)
            .orElseGet(NetworkAddresses::reachable);
    BootstrapRoot root = new BootstrapRoot(SessionKey.of(secret), 0, options);
    if (root.inEventLoop()) {
      root.kill();
      throw new InvalidUsage("createUniqueId waits for the port; not on a thread of a bootstrap");
    }
    CompletableFuture<InetSocketAddress> opened = root.open(new InetSocketAddress(address, 0));
    try {
      UniqueId id = UniqueId.of(opened.orTimeout(OPEN_SECONDS, TimeUnit.SECONDS).join(), secret);
      BY_ID.put(id, root);
      root.ended().thenRun(() -> BY_ID.remove(id));
      return id;
    } catch (RuntimeException e) {
      root.kill();
      throw FluxCclException.from(e);
    }
  }

  /** The root of an id, or null when another process hosts it. */
  static BootstrapRoot of(UniqueId id) {
    return BY_ID.get(id);
  }
}
