// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.InvalidUsage;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.device.Device;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportEnvironment;
import io.fluxccl.transport.TransportProvider;
import java.util.EnumMap;
import java.util.Map;
import java.util.Optional;
import java.util.ServiceLoader;
import java.util.function.Supplier;

/** The transports of one communicator, each opened when first needed. Thread-safe. */
final class TransportContexts implements AutoCloseable {
  private final TransportEnvironment environment;
  private final Lifecycle lifecycle = new Lifecycle("the communicator");
  // Guarded by this. A ServiceLoader reads jars until it has found what is asked for, and keeps it.
  private final Iterable<TransportProvider> providers;
  private final Map<Transport, TransportContext> open = new EnumMap<>(Transport.class);

  /**
   * @param providers of all transports, looked up once
   */
  TransportContexts(
      TransportEnvironment environment, Supplier<? extends Iterable<TransportProvider>> providers) {
    this.environment = environment;
    this.providers = providers.get();
  }

  /** Returns what transports need to know of a rank. */
  static TransportEnvironment environment(Bootstrap bootstrap, Device device) {
    int rank = bootstrap.rank();
    return new TransportEnvironment(
        rank,
        bootstrap.nRanks(),
        bootstrap.hostHash(rank),
        bootstrap.processHash(rank),
        device,
        bootstrap.hostAddress());
  }

  /** Returns the transports of this build. */
  static Iterable<TransportProvider> installed() {
    return ServiceLoader.load(TransportProvider.class, TransportProvider.class.getClassLoader());
  }

  synchronized TransportContext of(Transport transport) {
    lifecycle.checkOpen();
    TransportContext context = open.get(transport);
    if (context == null) {
      context =
          RankLog.of(
              environment.rank(),
              () -> lifecycle.own(providerOf(transport).open(transport, environment)));
      open.put(transport, context);
    }
    return context;
  }

  /**
   * The context if the transport can be used here; otherwise empty: a peer may offer more than this
   * side has.
   */
  synchronized Optional<TransportContext> ifAvailable(Transport transport) {
    if (open.containsKey(transport)) {
      return Optional.of(open.get(transport));
    }
    return find(transport)
        .filter(provider -> provider.unavailableBecause(transport).isEmpty())
        .map(provider -> of(transport));
  }

  /** Returns why the transport can't be used here for memory of this rank's device, or empty. */
  Optional<String> unusableBecause(Transport transport) {
    Device device = environment.device();
    return find(transport)
        .map(
            provider ->
                provider
                    .unavailableBecause(transport)
                    .or(
                        () ->
                            provider.unreachableBecause(
                                transport, device.kind(), device.exportsDmaBufs())))
        .orElseGet(() -> Optional.of(TransportProvider.absentBecause(transport)));
  }

  private synchronized Optional<TransportProvider> find(Transport transport) {
    for (TransportProvider provider : providers) {
      if (provider.transports().contains(transport)) {
        return Optional.of(provider);
      }
    }
    return Optional.empty();
  }

  private TransportProvider providerOf(Transport transport) {
    Optional<TransportProvider> provider = find(transport);
    String missing =
        provider.isEmpty()
            ? TransportProvider.absentBecause(transport)
            : provider.get().unavailableBecause(transport).orElse("");
    if (!missing.isEmpty()) {
      throw new InvalidUsage("transport " + transport + " is not available: " + missing);
    }
    return provider.get();
  }

  @Override
  public void close() {
    lifecycle.close();
  }
}
