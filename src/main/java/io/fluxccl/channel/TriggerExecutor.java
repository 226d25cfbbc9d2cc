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
import io.fluxccl.proxy.ChannelTrigger;
import io.fluxccl.proxy.ProxyDuty;
import io.fluxccl.proxy.ProxyHandler;
import io.fluxccl.proxy.ProxyHandlerResult;
import io.fluxccl.semaphore.Host2DeviceSemaphore;
import io.fluxccl.transport.Connection;
import io.fluxccl.transport.RegisteredMemory;
import java.util.stream.IntStream;
import org.agrona.concurrent.AtomicBuffer;

/**
 * Executes the triggers of a proxy service, and keeps the semaphores and memories that the ids in
 * triggers name. A trigger that can't be executed fails its own channel only.
 *
 * <p>Its owner's lock guards the methods that add. The other methods are the proxy thread's. An
 * element of the tables is written before a trigger that names it can be pushed; the ring's release
 * and acquire publish it.
 *
 * <p>A fresh id is preferred to that of a closed object, so that a late trigger for the closed
 * object fails. Once all ids have been used, those of closed objects are reused.
 */
final class TriggerExecutor implements ProxyHandler, ProxyDuty {
  /** The failure of a channel when there is no memory to create a specific one. */
  private static final FluxCclException OUT_OF_MEMORY =
      new Aborted(FluxCclException.NO_RANK, "a channel failed while the JVM was out of memory");

  private final Communicator communicator;
  private final AtomicBuffer flushWords;
  private final ChannelFailureListener failureListener;
  private final String proxyName;
  private final FlushTracker[] channels = new FlushTracker[MAX_IDS];
  private final RegisteredMemory[] memories = new RegisteredMemory[MAX_MEMORIES];
  private volatile int channelCount;
  private int memoryCount;

  /** Whether a connection has failed since the proxy last looked. */
  private volatile boolean connectionFailed;

  TriggerExecutor(
      Communicator communicator,
      AtomicBuffer flushWords,
      ChannelFailureListener failureListener,
      String proxyName) {
    this.communicator = communicator;
    this.flushWords = flushWords;
    this.failureListener = failureListener;
    this.proxyName = proxyName;
  }

  int channelCount() {
    return channelCount;
  }

  /**
   * Returns the id for a new channel: a fresh one, or else that of a closed semaphore whose flushes
   * are done.
   *
   * @return the id, or -1 if there is none
   */
  int freeChannel() {
    int count = channelCount;
    return count < MAX_IDS
        ? count
        : IntStream.range(0, count)
            .filter(id -> channels[id].semaphore.isClosed() && channels[id].retire())
            .findFirst()
            .orElse(-1);
  }

  /**
   * Adds a channel.
   *
   * @param id a result of {@link #freeChannel}
   * @return the closed semaphore that had the id before, or null
   */
  Host2DeviceSemaphore add(int id, Host2DeviceSemaphore semaphore, Connection connection) {
    FlushTracker before = channels[id];
    channels[id] = new FlushTracker(semaphore, connection, flushWords, id * FLUSH_WORD_STRIDE);
    channelCount = Math.max(channelCount, id + 1);
    // A kernel may wait for the peer without posting, so no failing post would report this.
    connection.failed().thenRun(() -> connectionFailed = true);
    return before == null ? null : before.semaphore;
  }

  /** Adds a memory and returns its id. */
  int add(RegisteredMemory memory) {
    int id =
        memoryCount < MAX_MEMORIES
            ? memoryCount++
            : IntStream.range(0, MAX_MEMORIES)
                .filter(i -> memories[i].isClosed())
                .findFirst()
                .orElseThrow(
                    () ->
                        InvalidUsage.of(
                            "this ProxyService holds %s memories already; close those that are not"
                                + " used any more, or create a second service",
                            MAX_MEMORIES));
    memories[id] = memory;
    return id;
  }

  /** Returns the channel of a semaphore's id; throws InvalidUsage if there is none. */
  FlushTracker channel(int id) {
    if (id < 0 || id >= channelCount) {
      throw InvalidUsage.of("semaphore=%s; there are %s", id, channelCount);
    }
    return channels[id];
  }

  /** Returns the memory of an id; throws InvalidUsage if there is none. */
  RegisteredMemory memory(String role, int id) {
    if (id < 0 || id >= memoryCount) {
      throw InvalidUsage.of("%s memory=%s; there are %s", role, id, memoryCount);
    }
    return memories[id];
  }

  @Override
  public ProxyHandlerResult handle(long first, long second, long position) {
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
    if (type == 0) {
      throw ChannelTrigger.refusal(first, second);
    }
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

  /** Polls the flushes that kernels wait for. */
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

  /** Fails the channels whose connections have failed, but for those that were closed here. */
  private void failWithConnections() {
    connectionFailed = false;
    for (int id = 0, n = channelCount; id < n; id++) {
      FlushTracker channel = channels[id];
      if (channel.connection.failure() instanceof TransportFailure lost) {
        fail(id, channel, lost);
      }
    }
  }

  /** Returns false once the communicator has failed, because its kernels no longer wait. */
  @Override
  public boolean isPending() {
    return communicator.failure() == null
        && IntStream.range(0, channelCount).anyMatch(id -> channels[id].isFlushing());
  }

  @Override
  public void giveUp() {
    for (int id = 0, n = channelCount; id < n; id++) {
      FlushTracker channel = channels[id];
      if (channel.isFlushing()) {
        int peer = channel.connection.remoteRank();
        String text =
            "proxy=%s stopped while a flush to rank %s was not done; let kernels wait for their"
                + " flushes before the stop";
        fail(id, channel, Timeout.of(peer, text, proxyName, peer));
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
}
