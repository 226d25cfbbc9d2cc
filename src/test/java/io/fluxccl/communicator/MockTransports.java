// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyInt;
import static org.mockito.Mockito.doAnswer;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.testkit.LocalRank;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Endpoint;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportContext;
import io.fluxccl.transport.TransportProvider;
import java.util.EnumSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.Function;

/**
 * All transports, with unconnected connections. Closing a context or connection fails if a failure
 * was set. Records the closed objects in order: {@code SHM}, {@code connection of SHM}.
 */
final class MockTransports {
  final List<String> closed = new CopyOnWriteArrayList<>();
  final TransportProvider provider = provider(EnumSet.allOf(Transport.class), this::context);
  private final Map<String, Throwable> failures = new ConcurrentHashMap<>();

  /** Returns a provider of transports that are available. */
  static TransportProvider provider(
      Set<Transport> transports, Function<Transport, TransportContext> open) {
    TransportProvider provider = mock(TransportProvider.class);
    when(provider.transports()).thenReturn(transports);
    when(provider.open(any(), any())).thenAnswer(call -> open.apply(call.getArgument(0)));
    return provider;
  }

  /** Returns a context whose endpoints are all this one. */
  static TransportContext contextOf(Endpoint endpoint) {
    TransportContext context = mock(TransportContext.class);
    when(context.createEndpoint(anyInt(), anyInt(), any())).thenReturn(endpoint);
    return context;
  }

  /** Returns a communicator of a rank, with one transport only. */
  static Communicator communicator(LocalRank rank, Transport only, TransportContext context) {
    return Communicator.create(
        rank.bootstrap(),
        rank.device(),
        CommunicatorOptions.DEFAULT,
        () -> List.of(provider(Set.of(only), transport -> context)));
  }

  /** Sets the failure that closing that context throws. */
  void refuse(Transport context, Throwable failure) {
    failures.put(context.name(), failure);
  }

  /** Sets the failure that closing connections of that transport throws. */
  void refuseConnections(Transport transport, Throwable failure) {
    failures.put("connection of " + transport, failure);
  }

  private <T extends AutoCloseable> T recordClose(T resource, String name) throws Exception {
    doAnswer(
            call -> {
              closed.add(name);
              if (failures.containsKey(name)) {
                throw failures.get(name);
              }
              return null;
            })
        .when(resource)
        .close();
    return resource;
  }

  private TransportContext context(Transport transport) {
    try {
      TransportContext context = mock(TransportContext.class);
      when(context.createEndpoint(anyInt(), anyInt(), any()))
          .thenAnswer(call -> endpoint(transport, call.getArgument(0), call.getArgument(1)));
      return recordClose(context, transport.name());
    } catch (Exception e) {
      throw new AssertionError(e);
    }
  }

  private Endpoint endpoint(Transport transport, int remoteRank, int tag) throws Exception {
    Connection link = recordClose(mock(Connection.class), "connection of " + transport);
    when(link.transport()).thenReturn(transport);
    when(link.remoteRank()).thenReturn(remoteRank);
    when(link.tag()).thenReturn(tag);
    when(link.failed()).thenReturn(new CompletableFuture<>());
    Endpoint endpoint = mock(Endpoint.class);
    when(endpoint.wire()).thenReturn(new byte[0]);
    when(endpoint.connect(any(), any())).thenReturn(CompletableFuture.completedFuture(link));
    return endpoint;
  }
}
