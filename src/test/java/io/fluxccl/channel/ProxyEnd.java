// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.device.host.KernelThread;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.TestConnection;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.Transport;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicReference;
import java.util.function.Consumer;
import org.agrona.concurrent.AgentInvoker;

/** One rank's service with channels over a connection to a peer, which may be the rank itself. */
final class ProxyEnd implements AutoCloseable {
  final TestConnection link;
  final ProxyService service;

  /** The channel with semaphore 0, over the whole buffer. */
  final ProxyChannelDeviceHandle channel;

  /** The last failed channel: its semaphore, the peer and the code. */
  final AtomicReference<String> reported = new AtomicReference<>("nothing");

  private AgentInvoker stepper;

  private ProxyEnd(TestConnection link, ProxyOptions options) {
    this.link = link;
    service =
        new ProxyService(
            link.rank.communicator(),
            64,
            options,
            (id, peer, reason) -> reported.set(id + " " + peer + " " + reason.code()));
    channel = addChannel(link.connection).deviceHandle();
  }

  /** Returns an end of a connection between two ranks. */
  static ProxyEnd between(LocalRank rank, Transport transport, long bytes) {
    return new ProxyEnd(
        TestConnection.to(rank, 1 - rank.rank(), 0, transport, bytes), ProxyOptions.defaults());
  }

  /** Returns both ends of a connection of a rank with itself, with buffers of 64 bytes. */
  static ProxyEnd ofOne(LocalRank rank, ProxyOptions options) {
    return new ProxyEnd(TestConnection.to(rank, 0, 0, Transport.SHM, 64), options);
  }

  static ProxyEnd ofOne(LocalRank rank) {
    return ofOne(rank, ProxyOptions.defaults());
  }

  /** Starts the proxy's thread. */
  ProxyEnd start() {
    service.startProxy();
    return this;
  }

  /** Lets the caller step the proxy. */
  ProxyEnd steppedByHand() {
    stepper =
        new AgentInvoker(
            error -> {
              throw new AssertionError(error);
            },
            null,
            service.proxy());
    stepper.start();
    return this;
  }

  /** Runs one cycle of the proxy and returns its work count. */
  int step() {
    return stepper.invoke();
  }

  /** Ends the stepping: the proxy handles what was pushed. */
  void stopStepping() {
    stepper.close();
  }

  Host2DeviceSemaphore newSemaphore() {
    return new Host2DeviceSemaphore(link.rank.communicator(), link.connection);
  }

  /** Adds a channel that writes by the given connection. */
  ProxyChannel addChannel(Connection connection) {
    int semaphore = service.addSemaphore(newSemaphore(), connection);
    link.rank.communicator().setup().join();
    return service.proxyChannel(
        semaphore, service.addMemory(link.remote), service.addMemory(link.local));
  }

  /** Runs a kernel on the rank's stream, and waits for it. */
  void run(int threads, Consumer<KernelThread> body) throws Exception {
    HostKernel kernel = HostKernel.of("test", (thread, args) -> body.accept(thread));
    link.rank.stream()
        .launch(kernel, 1, threads, KernelArgs.NONE)
        .completion()
        .get(220, TimeUnit.SECONDS);
  }

  @Override
  public void close() {
    if (stepper != null) {
      stepper.close();
    }
    service.close();
  }
}
