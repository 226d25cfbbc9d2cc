// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.Experimental;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.concurrent.Lifecycle;
import java.util.concurrent.CompletableFuture;

/**
 * For transports: the base of every connection. It holds the connection's identity and its {@link
 * Lifecycle}, in which closing counts as a failure, and checks the arguments of posts. The checks
 * allocate nothing.
 */
@Experimental
public abstract class ConnectionEnd implements Connection {
  private final Transport transport;
  private final int rank;
  private final int remoteRank;
  private final int tag;
  private final Lifecycle lifecycle;
  private volatile boolean peerLeft;

  /**
   * Creates an open connection.
   *
   * @param transport its transport
   * @param rank the rank of this end
   * @param remoteRank the rank of the other end
   * @param tag its tag
   */
  protected ConnectionEnd(Transport transport, int rank, int remoteRank, int tag) {
    this.transport = transport;
    this.rank = rank;
    this.remoteRank = remoteRank;
    this.tag = tag;
    this.lifecycle = new Lifecycle(describe());
  }

  @Override
  public final Transport transport() {
    return transport;
  }

  @Override
  public final int remoteRank() {
    return remoteRank;
  }

  @Override
  public final int tag() {
    return tag;
  }

  /** Returns the rank of this end. */
  protected final int rank() {
    return rank;
  }

  // Checks of posts: any thread.

  /**
   * Checks that the connection accepts posts. If the peer has closed its end, this method fails the
   * connection.
   *
   * @throws FluxCclException the failure of the connection, if it has failed
   */
  protected final void checkWorking() {
    if (peerLeft) {
      fail(left(), null);
    }
    FluxCclException reason = lifecycle.failure();
    if (reason != null) {
      throw reason;
    }
  }

  /**
   * Returns this transport's handle of a memory.
   *
   * @param what the role of the memory, for the error: {@code target} or {@code source}
   * @param owner the rank that must own the memory
   * @throws InvalidUsage if another rank owns it, or it was not registered for this transport
   */
  protected final MemoryHandle handleOf(String what, RegisteredMemory memory, int owner) {
    if (memory.rank() != owner) {
      throw InvalidUsage.of(
          "%s is memory of rank %s; here it must be rank %s's", what, memory.rank(), owner);
    }
    return memory.handle(transport);
  }

  /**
   * Returns a context's own handle of a memory.
   *
   * @param context the context of this connection
   * @throws InvalidUsage as {@link #handleOf(String, RegisteredMemory, int)}, or if the memory
   *     belongs to another communicator
   */
  protected final <H extends CountedMemory> H handleOf(
      String what, RegisteredMemory memory, int owner, TransportContext context, Class<H> type) {
    MemoryHandle handle = handleOf(what, memory, owner);
    if (!type.isInstance(handle) || !type.cast(handle).belongsTo(context, memory.size())) {
      throw InvalidUsage.of(
          "%s %s was not registered with, or received by, this communicator", what, memory);
    }
    return type.cast(handle);
  }

  /**
   * Keeps a memory open until {@link CountedMemory#release()}.
   *
   * @throws InvalidUsage if the memory is closed
   */
  protected static void enter(String what, CountedMemory handle, RegisteredMemory memory) {
    if (!handle.enter()) {
      throw closed(what, memory);
    }
  }

  /** Returns the error of using a memory that is closed. */
  protected static InvalidUsage closed(String what, RegisteredMemory memory) {
    return InvalidUsage.of("%s memory %s is closed", what, memory);
  }

  /** Checks that a signal's offset is a multiple of 8; the start of the memory is aligned. */
  protected static void checkAligned(long targetOffset) {
    if ((targetOffset & (Long.BYTES - 1)) != 0) {
      throw InvalidUsage.of("targetOffset=%s; give a multiple of 8", targetOffset);
    }
  }

  /**
   * Checks that a signal's address is a multiple of 8; the start of the memory may be unaligned.
   */
  protected final void checkAlignedAt(long address, long targetOffset) {
    if ((address & Long.BYTES - 1) != 0) {
      throw InvalidUsage.of(
          "targetOffset=%s is not at a multiple of 8 of rank %s", targetOffset, remoteRank);
    }
  }

  // Failure and close.

  /** Records that the peer has closed its end. Posts fail from now on. */
  protected final void setPeerLeft() {
    peerLeft = true;
  }

  /** Returns whether {@link #setPeerLeft} was called. */
  public final boolean hasPeerLeft() {
    return peerLeft;
  }

  /** Returns the message of the failure when the peer has closed its end. */
  public String left() {
    return "rank " + remoteRank + " has closed its end";
  }

  /** Returns whether the connection has failed or was closed. */
  public final boolean hasFailed() {
    return lifecycle.failure() != null;
  }

  @Override
  public final FluxCclException failure() {
    return lifecycle.failure();
  }

  @Override
  public final CompletableFuture<FluxCclException> failed() {
    return lifecycle.failed();
  }

  /**
   * Fails the connection with a {@link TransportFailure}, unless it has failed before. Any thread.
   *
   * @param message what happened
   * @param cause the cause, or null
   */
  public final void fail(String message, Throwable cause) {
    if (!hasFailed()) {
      end(new TransportFailure(remoteRank, describe() + ": " + message, cause));
    }
  }

  @Override
  public void close() {
    end(closedHere());
  }

  /** Returns the failure of a connection that this rank closes. */
  protected final Aborted closedHere() {
    return Aborted.of(rank, "%s was closed by rank %s", describe(), rank);
  }

  /** Returns the failure of a connection that this rank closes before it is connected. */
  protected final Aborted givenUp() {
    return Aborted.of(rank, "%s was given up before it was connected", describe());
  }

  /**
   * Fails the connection, unless it has failed before: calls {@link #setFailure}, frees the
   * connection's resources, and finally calls {@link #tellFailed}. Any thread.
   *
   * @param reason the failure
   */
  public abstract void end(FluxCclException reason);

  /**
   * Records the first failure, after which posts are refused. Returns whether {@code reason} is the
   * first failure.
   */
  protected final boolean setFailure(FluxCclException reason) {
    return lifecycle.fail(reason);
  }

  /** Completes {@link #failed()}: the last step of {@link #end}. */
  protected final void tellFailed() {
    lifecycle.announceFailure();
  }

  // Errors.

  /** Returns the error of a flush that was not acknowledged in time. */
  protected final FluxCclException flushTimeout(Deadline deadline) {
    return Timeout.of(
        remoteRank,
        "flush of %s was not acknowledged by rank %s within %s ms; %s",
        describe(),
        remoteRank,
        deadline.timeout().toMillis(),
        interruption() == null
            ? "allow more time, or see what holds that rank up"
            : interruption().getMessage());
  }

  /**
   * Returns the error of a connection that was not connected in time.
   *
   * @param missing the step that has not happened, and further things to check
   */
  protected final Timeout connectTimeout(Deadline deadline, String missing) {
    return Timeout.of(
        remoteRank,
        "%s was not connected within %s ms: %s;"
            + " does rank %s connect to rank %s with the same tag?",
        describe(),
        deadline.timeout().toMillis(),
        missing,
        remoteRank,
        rank);
  }

  /** Returns the error of connecting the same endpoint twice. */
  protected final InvalidUsage connectedTwice() {
    return InvalidUsage.of("%s: connect was called before; make a new endpoint", describe());
  }

  /** Returns the connection's name for messages. */
  protected final String describe() {
    return Text.of(
        "the %s connection of rank %d to rank %d (tag %d)", transport, rank, remoteRank, tag);
  }

  @Override
  public final String toString() {
    return describe();
  }
}
