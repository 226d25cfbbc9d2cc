package io.fluxccl.transport;

import io.fluxccl.Aborted;
import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicReference;

/**
 * For transports: what every end of a connection to a peer that is somewhere else has. It knows
 * whose it is, and when and why it ended, which happens once. Its checks allocate nothing.
 */
public abstract class ConnectionEnd implements Connection {
  private final Transport transport;
  private final int rank;
  private final int remoteRank;
  private final int tag;
  private final AtomicReference<FluxCclException> failure = new AtomicReference<>();
  private final CompletableFuture<FluxCclException> failed = new CompletableFuture<>();
  private volatile boolean peerLeft;

  /**
   * A new end.
   *
   * @param transport what it goes over
   * @param rank this end's
   * @param remoteRank the peer's
   * @param tag the connection's
   */
  protected ConnectionEnd(Transport transport, int rank, int remoteRank, int tag) {
    this.transport = transport;
    this.rank = rank;
    this.remoteRank = remoteRank;
    this.tag = tag;
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

  /** The rank of this end. */
  protected final int rank() {
    return rank;
  }

  // Checks of what is posted: any thread.

  /**
   * Refuses to post on an end that has failed, or whose peer has left in order: it fails then.
   *
   * @throws FluxCclException why
   */
  protected final void checkWorking() {
    if (peerLeft) {
      fail(left(), null);
    }
    FluxCclException reason = failure.get();
    if (reason != null) {
      throw reason;
    }
  }

  /**
   * The part of a memory that is for this transport.
   *
   * @param what it is here, for the error
   * @param owner whose it must be
   * @throws InvalidUsage if it is another rank's
   */
  protected final MemoryHandle handleOf(String what, RegisteredMemory memory, int owner) {
    if (memory.rank() != owner) {
      throw new InvalidUsage(
          what + " is memory of rank " + memory.rank() + "; here it must be rank " + owner + "'s");
    }
    return memory.handle(transport);
  }

  /** The error of who uses memory that is closed. */
  protected static InvalidUsage closed(String what, RegisteredMemory memory) {
    return new InvalidUsage(what + " memory " + memory + " is closed");
  }

  /** Refuses a signal that is not aligned in its memory, which itself is. */
  protected static void checkAligned(long targetOffset) {
    if ((targetOffset & (Long.BYTES - 1)) != 0) {
      throw new InvalidUsage("targetOffset=" + targetOffset + "; give a multiple of 8");
    }
  }

  // Ending.

  /** The peer says that it writes and reads no more: who posts from now on fails. */
  protected final void setPeerLeft() {
    peerLeft = true;
  }

  /** Whether {@link #setPeerLeft} was called. */
  public final boolean hasPeerLeft() {
    return peerLeft;
  }

  /** That the peer has left, in words. */
  public String left() {
    return "rank " + remoteRank + " has closed its end";
  }

  /** Whether it has ended. */
  public final boolean hasFailed() {
    return failure.get() != null;
  }

  @Override
  public final FluxCclException failure() {
    return failure.get();
  }

  @Override
  public final CompletableFuture<FluxCclException> failed() {
    return failed.copy();
  }

  /**
   * Ends it with a {@link TransportFailure}, if it has not ended. Any thread.
   *
   * @param message what happened
   * @param cause of it, or null
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

  /** Why it ends when it is closed. */
  protected final Aborted closedHere() {
    return new Aborted(rank, describe() + " was closed by rank " + rank);
  }

  /** Why it ends when nobody waits for it to be connected. */
  protected final Aborted givenUp() {
    return new Aborted(rank, describe() + " was given up before it was connected");
  }

  /**
   * Ends it, if it has not ended: {@link #setFailure}, and then all that there is to close. Any
   * thread.
   *
   * @param reason why
   */
  public abstract void end(FluxCclException reason);

  /** Notes the first reason; whether this is it. What is posted is refused from here on. */
  protected final boolean setFailure(FluxCclException reason) {
    return failure.compareAndSet(null, reason);
  }

  /** Completes {@link #failed()}: the last step of {@link #end}. */
  protected final void tellFailed() {
    failed.complete(failure.get());
  }

  // Errors with names.

  /** A flush was not done in time. */
  protected final FluxCclException flushTimeout(Deadline deadline) {
    return new Timeout(
        remoteRank,
        "flush of "
            + describe()
            + " was not acknowledged by rank "
            + remoteRank
            + " within "
            + deadline.timeout().toMillis()
            + " ms; allow more time, or see what holds that rank up");
  }

  /**
   * It was not connected in time.
   *
   * @param missing what has not happened, and what else to ask
   */
  protected final Timeout connectTimeout(Deadline deadline, String missing) {
    return new Timeout(
        remoteRank,
        describe()
            + " was not connected within "
            + deadline.timeout().toMillis()
            + " ms: "
            + missing
            + "; does rank "
            + remoteRank
            + " connect to rank "
            + rank
            + " with the same tag?");
  }

  /** The error of who connects the same end twice. */
  protected final InvalidUsage connectedTwice() {
    return new InvalidUsage(describe() + ": connect was called before; make a new endpoint");
  }

  /** Which connection this is, for people. */
  protected final String describe() {
    return "the " + transport + " connection to rank " + remoteRank + " (tag " + tag + ")";
  }

  @Override
  public final String toString() {
    return describe();
  }
}
