// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.channel;

import static io.fluxccl.channel.ProxyChannelDescriptor.FLUSH_WORD_STRIDE;
import static io.fluxccl.proxy.ChannelTrigger.DATA;
import static io.fluxccl.proxy.ChannelTrigger.FLUSH;
import static io.fluxccl.proxy.ChannelTrigger.MAX_IDS;
import static io.fluxccl.proxy.ChannelTrigger.MAX_MEMORIES;
import static io.fluxccl.proxy.ChannelTrigger.SIGNAL;

import io.fluxccl.Aborted;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.concurrent.Lifecycle;
import io.fluxccl.concurrent.RankLog;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.proxy.ChannelTrigger;
import io.fluxccl.proxy.Fifo;
import io.fluxccl.proxy.FifoDescriptor;
import io.fluxccl.proxy.FifoDeviceHandle;
import io.fluxccl.proxy.Proxy;
import io.fluxccl.proxy.ProxyDuty;
import io.fluxccl.proxy.ProxyHandlerResult;
import io.fluxccl.proxy.ProxyOptions;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import java.util.function.DoubleSupplier;
import java.util.stream.IntStream;

/**
 * Builds proxy channels and executes the triggers that kernels push on them. It has one ring, one
 * proxy thread and any number of peers. A communicator usually has one service.
 *
 * <p>A trigger that can't be executed fails its own channel only: the listener is notified, the
 * channel's flushes return false, and the loop goes on. The thread starts with the first semaphore,
 * so an unused service costs nothing.
 *
 * <p>Semaphores and memories may be added on any thread, before a kernel uses their ids.
 */
public final class ProxyService implements AutoCloseable {
  /** The failure of a channel when there is no memory to create a specific one. */
  private static final FluxCclException OUT_OF_MEMORY =
      new Aborted(FluxCclException.NO_RANK, "a channel failed for want of memory");

  private final Communicator communicator;
  private final Proxy proxy;
  private final FifoDeviceHandle fifoHandle;
  private final PinnedBuffer flushWords;
  private final ChannelFailureListener failureListener;
  // Elements are written before a trigger that names them can be pushed; the ring's release and
  // acquire publish them.
  private final FlushTracker[] channels = new FlushTracker[MAX_IDS];
  private final RegisteredMemory[] memories = new RegisteredMemory[MAX_MEMORIES];
  private volatile int channelCount;

  /** Whether a connection has failed since the proxy last looked. */
  private volatile boolean connectionFailed;

  private int memoryCount;
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
    this.failureListener = failureListener;
    this.lifecycle = new Lifecycle("the proxy service of rank " + communicator.bootstrap().rank());
    Fifo fifo = new Fifo(communicator.device(), fifoSize);
    try {
      this.fifoHandle = fifo.deviceHandle(communicator.abortFlag());
      this.flushWords = communicator.device().allocatePinned(MAX_IDS * FLUSH_WORD_STRIDE);
    } catch (RuntimeException | Error failure) {
      fifo.close();
      throw failure;
    }
    lifecycle.own(flushWords);
    Runnable threadInit =
        () -> {
          communicator.device().bindThread();
          options.threadInit().run();
        };
    this.proxy =
        new Proxy(
            fifo,
            this::handle,
            options.toBuilder().threadInit(threadInit).duty(new Flushes()).build());
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
    int id = channelCount;
    if (id == MAX_IDS) {
      lifecycle.disown(semaphore);
      semaphore.close();
      throw InvalidUsage.of(
          "this ProxyService holds %s semaphores already; create a second service", MAX_IDS);
    }
    channels[id] =
        new FlushTracker(semaphore, connection, flushWords.buffer(), id * FLUSH_WORD_STRIDE);
    channelCount = id + 1;
    // A kernel may wait for the peer while nobody posts here.
    connection.failed().thenRun(() -> connectionFailed = true);
    startIfNeeded();
    return id;
  }

  /**
   * Adds a memory of this rank or of a peer. The caller remains its owner.
   *
   * @return the id
   * @throws InvalidUsage if there are 512 already
   */
  public synchronized int addMemory(RegisteredMemory memory) {
    lifecycle.checkOpen();
    if (memoryCount == MAX_MEMORIES) {
      throw InvalidUsage.of(
          "this ProxyService holds %s memories already; create a second service", MAX_MEMORIES);
    }
    memories[memoryCount] = memory;
    return memoryCount++;
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
    if (semaphoreId < 0 || semaphoreId >= channelCount) {
      throw InvalidUsage.of("semaphore=%s; there are %s", semaphoreId, channelCount);
    }
    RegisteredMemory target = memory("target", targetId);
    RegisteredMemory source = memory("source", sourceId);
    FlushTracker channel = channels[semaphoreId];
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

  private RegisteredMemory memory(String role, int id) {
    if (id < 0 || id >= memoryCount) {
      throw InvalidUsage.of("%s memory=%s; there are %s", role, id, memoryCount);
    }
    return memories[id];
  }

  /** Starts the proxy thread, now or with the first semaphore. Idempotent. */
  public synchronized void startProxy() {
    lifecycle.checkOpen();
    startRequested = true;
    startIfNeeded();
  }

  private void startIfNeeded() {
    if (startRequested && channelCount > 0 && !proxy.isRunning()) {
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
   */
  public FluxCclException failure(int semaphoreId) {
    return channels[semaphoreId].failure();
  }

  private ProxyHandlerResult handle(long first, long second, long position) {
    int id = ChannelTrigger.id(second);
    FlushTracker channel = channels[id];
    if (channel == null) {
      throw new InvalidUsage("no such semaphore: " + ChannelTrigger.toString(first, second));
    }
    int type = ChannelTrigger.type(second);
    if (channel.failure() == null) {
      try {
        execute(channel, type, first, second, position);
      } catch (RuntimeException | Error e) {
        // Errors are caught too: later triggers of this channel must not run without this one.
        fail(id, channel, e);
      }
    }
    return (type & FLUSH) != 0
        ? ProxyHandlerResult.FLUSH_FIFO_TAIL_AND_CONTINUE
        : ProxyHandlerResult.CONTINUE;
  }

  private void execute(FlushTracker channel, int type, long first, long second, long position) {
    if ((type & DATA) != 0) {
      RegisteredMemory target = memories[ChannelTrigger.destinationMemory(second)];
      RegisteredMemory source = memories[ChannelTrigger.sourceMemory(second)];
      if (target == null || source == null) {
        throw new InvalidUsage("no such memory: " + ChannelTrigger.toString(first, second));
      }
      channel.connection.write(
          target,
          ChannelTrigger.destinationOffset(second),
          source,
          ChannelTrigger.sourceOffset(first),
          ChannelTrigger.size(first));
    }
    if ((type & SIGNAL) != 0) {
      channel.semaphore.signal();
    }
    if ((type & FLUSH) != 0) {
      channel.flush(position);
    }
  }

  /** Fails the channels whose connections have failed, but for those that were closed here. */
  private void failWithConnections() {
    connectionFailed = false;
    for (int id = 0, n = channelCount; id < n; id++) {
      if (channels[id].connection.failure() instanceof TransportFailure lost) {
        fail(id, channels[id], lost);
      }
    }
  }

  /** Polls the flushes that kernels wait for. */
  private final class Flushes implements ProxyDuty {
    @Override
    public int doWork() {
      int steps = 0;
      if (connectionFailed) {
        failWithConnections();
        steps++;
      }
      for (int id = 0, n = channelCount; id < n; id++) {
        FlushTracker channel = channels[id];
        if (channel.isFlushing()) {
          try {
            steps += channel.poll();
          } catch (RuntimeException | Error e) {
            fail(id, channel, e);
          }
        }
      }
      return steps;
    }

    /** Returns false once the communicator has failed, because its kernels no longer wait. */
    @Override
    public boolean isPending() {
      return communicator.failure() == null
          && IntStream.range(0, channelCount).anyMatch(id -> channels[id].isFlushing());
    }

    @Override
    public void giveUp() {
      for (int id = 0; id < channelCount; id++) {
        if (channels[id].isFlushing()) {
          int peer = channels[id].connection.remoteRank();
          String text =
              "proxy=%s stopped while a flush to rank %s was not done; let kernels wait for their"
                  + " flushes before the stop";
          fail(id, channels[id], Timeout.of(peer, text, proxy.roleName(), peer));
        }
      }
    }
  }

  private void fail(int id, FlushTracker channel, Throwable cause) {
    FluxCclException reason;
    try {
      reason = FluxCclException.from(cause);
    } catch (Error e) {
      reason = OUT_OF_MEMORY;
    }
    if (channel.fail(reason)) {
      failureListener.onChannelFailure(id, channel.connection.remoteRank(), reason);
    }
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
