// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static io.fluxccl.channel.ProxyChannelDescriptor.FLUSH_WORD_STRIDE;
import static io.fluxccl.proxy.ChannelTrigger.MAX_IDS;

import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Closing;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.proxy.Fifo;
import io.fluxccl.proxy.FifoDescriptor;
import io.fluxccl.proxy.FifoDeviceHandle;
import io.fluxccl.proxy.Proxy;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import java.util.function.DoubleSupplier;

/**
 * Builds proxy channels and executes the triggers that kernels push on them. It has one ring, one
 * proxy thread and any number of peers. A communicator usually has one service.
 *
 * <p>A trigger that can't be executed fails its own channel only: the listener is notified, the
 * channel's flushes return false, and the loop continues. The thread starts with the first
 * semaphore, so an unused service costs nothing.
 *
 * <p>Semaphores and memories may be added on any thread, before a kernel uses their ids.
 */
public final class ProxyService implements AutoCloseable {
  private final Communicator communicator;
  private final Proxy proxy;
  private final FifoDeviceHandle fifoHandle;
  private final PinnedBuffer flushWords;
  private final TriggerExecutor executor;
  private boolean startRequested;
  private final Lifecycle lifecycle;

  /**
   * Creates a service with a ring of the default size and the default options, which logs failed
   * channels.
   */
  public ProxyService(Communicator communicator) {
    this(
        communicator,
        ProxyOptions.builderFor(communicator.device())
            .name("fluxccl-proxy-" + communicator.bootstrap().rank())
            .build());
  }

  /** Creates a service with options of the caller's choice, for example how its thread idles. */
  public ProxyService(Communicator communicator, ProxyOptions options) {
    this(communicator, FifoDescriptor.DEFAULT_SIZE, options, ChannelFailureListener.LOGGING);
  }

  /**
   * Creates a service.
   *
   * @param communicator the communicator of the memories and connections
   * @param fifoSize the number of triggers in the ring, a power of two
   * @param options the options of the proxy; the service replaces the duty, and binds the thread to
   *     the device before it runs {@code threadInit}
   * @param failureListener notified of failed channels
   * @throws InvalidUsage if {@code fifoSize} is not a power of two
   */
  public ProxyService(
      Communicator communicator,
      int fifoSize,
      ProxyOptions options,
      ChannelFailureListener failureListener) {
    this.communicator = communicator;
    this.lifecycle = new Lifecycle("the proxy service of rank " + communicator.bootstrap().rank());
    Fifo fifo = new Fifo(communicator.device(), fifoSize);
    this.fifoHandle =
        Closing.onFailure(fifo::close, () -> fifo.deviceHandle(communicator.abortFlag()));
    this.flushWords =
        Closing.onFailure(
            fifo::close, () -> communicator.device().allocatePinned(MAX_IDS * FLUSH_WORD_STRIDE));
    lifecycle.own(flushWords);
    Runnable threadInit =
        () -> {
          communicator.device().bindThread();
          options.threadInit().run();
        };
    this.executor =
        new TriggerExecutor(communicator, flushWords.buffer(), failureListener, options.name());
    this.proxy =
        new Proxy(
            fifo, executor, options.toBuilder().threadInit(threadInit).duty(executor).build());
    DoubleSupplier duty = proxy::duty;
    communicator.recorder().addProxy(duty);
    lifecycle.own(() -> communicator.recorder().removeProxy(duty));
  }

  /**
   * Builds a semaphore over a connection and adds it. The peer must do the same. The semaphore is
   * usable after the communicator's {@code setup()}.
   *
   * @return the id
   * @throws InvalidUsage if there are 1024 already, or this service is closed
   */
  public int buildAndAddSemaphore(Communicator owner, Connection connection) {
    lifecycle.checkOpen();
    return addSemaphore(new Host2DeviceSemaphore(owner, connection));
  }

  /**
   * Adds a semaphore. This service closes it, even if it refuses it.
   *
   * @return the id
   * @throws InvalidUsage if there are 1024 already, or this service is closed
   */
  public int addSemaphore(Host2DeviceSemaphore semaphore) {
    return addSemaphore(semaphore, semaphore.connection());
  }

  /**
   * Adds a semaphore with the connection for data and flushes, which is the semaphore's own except
   * in tests.
   */
  synchronized int addSemaphore(Host2DeviceSemaphore semaphore, Connection connection) {
    lifecycle.own(semaphore);
    int id = executor.freeChannel();
    if (id < 0) {
      lifecycle.disown(semaphore);
      semaphore.close();
      throw InvalidUsage.of(
          "this ProxyService holds %s semaphores already; close those that are not used any more,"
              + " or create a second service",
          MAX_IDS);
    }
    Host2DeviceSemaphore before = executor.add(id, semaphore, connection);
    if (before != null) {
      lifecycle.disown(before);
    }
    startIfNeeded();
    return id;
  }

  /**
   * Closes a semaphore. No kernel may use its channels any more, and their triggers must have been
   * handled; a last flush waits for that. Idempotent.
   *
   * <p>Once all ids have been given out, the id is given out again.
   *
   * @param semaphoreId a result of {@link #buildAndAddSemaphore}
   * @throws InvalidUsage if there is no such semaphore
   */
  public synchronized void closeSemaphore(int semaphoreId) {
    executor.channel(semaphoreId).semaphore.close();
  }

  /**
   * Adds a memory of this rank or of a peer. The caller remains its owner. Once 512 ids have been
   * given out, those of memories that were closed are given out again.
   *
   * @return the id
   * @throws InvalidUsage if there are 512 already
   */
  public synchronized int addMemory(RegisteredMemory memory) {
    lifecycle.checkOpen();
    return executor.add(memory);
  }

  /**
   * Creates a channel.
   *
   * @param semaphoreId a result of {@link #buildAndAddSemaphore}
   * @param targetId the id of the peer's memory, a result of {@link #addMemory}
   * @param sourceId the id of local memory, a result of {@link #addMemory}
   * @return the channel
   * @throws InvalidUsage if an id does not exist, the target is not the peer's, or the source is
   *     not local
   */
  public synchronized ProxyChannel proxyChannel(int semaphoreId, int targetId, int sourceId) {
    lifecycle.checkOpen();
    FlushTracker channel = executor.channel(semaphoreId);
    RegisteredMemory target = executor.memory("target", targetId);
    RegisteredMemory source = executor.memory("source", sourceId);
    int peer = channel.connection.remoteRank();
    if (target.rank() != peer || !source.isLocal()) {
      throw InvalidUsage.of(
          "a channel to rank %s needs a target of that rank and a source of this one; target is of"
              + " rank %s, source of rank %s",
          peer, target.rank(), source.rank());
    }
    return new ProxyChannel(
        fifoHandle,
        channel.semaphore,
        flushWords.deviceAddress() + (long) semaphoreId * FLUSH_WORD_STRIDE,
        semaphoreId,
        targetId,
        sourceId);
  }

  /** Starts the proxy thread, now or with the first semaphore. Idempotent. */
  public synchronized void startProxy() {
    lifecycle.checkOpen();
    startRequested = true;
    startIfNeeded();
  }

  private void startIfNeeded() {
    if (startRequested && executor.channelCount() > 0 && !proxy.isRunning()) {
      RankLog.line(communicator.bootstrap().rank(), proxy::start);
    }
  }

  /**
   * Handles the triggers pushed so far, finishes their flushes, and ends the proxy thread. A
   * channel whose flush is not done within the proxy's stop timeout fails. The proxy may be started
   * again. Idempotent.
   *
   * @throws Timeout if the proxy did not end in time; it may still copy
   */
  public synchronized void stopProxy() {
    startRequested = false;
    proxy.stop();
  }

  /**
   * Returns the proxy, so that a thread can step it by hand instead of calling {@link
   * #startProxy()}.
   */
  public Proxy proxy() {
    return proxy;
  }

  /**
   * Returns the failure of a channel.
   *
   * @param semaphoreId the semaphore id of the channel
   * @return the failure, or null while the channel works
   * @throws InvalidUsage if there is no such semaphore
   */
  public FluxCclException failure(int semaphoreId) {
    return executor.channel(semaphoreId).failure();
  }

  /**
   * Stops the proxy and frees the ring and the semaphores. No kernel may use a channel any more.
   * Idempotent.
   *
   * @throws InvalidUsage if called from the proxy thread, or while the proxy is stepped by hand
   * @throws Timeout if the proxy did not end in time; nothing is freed then. After either error,
   *     close may be called again
   */
  @Override
  public synchronized void close() {
    if (lifecycle.state() == Lifecycle.State.CLOSED) {
      return;
    }
    stopProxy();
    lifecycle.beginClose(); // refuses new channels even if the proxy can't be closed yet
    proxy.close();
    lifecycle.closeChildren();
  }
}
