// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import static io.fluxccl.collective.pipe.SlotRing.PAYLOAD_OFFSET;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.host.HostAlgorithm.HostCall;
import io.fluxccl.collective.host.HostAlgorithm.TransferMode;
import io.fluxccl.collective.pipe.CacheLines;
import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.device.host.HostMemory;
import io.fluxccl.device.host.SharedSegment;

/**
 * The state of one exchange with a peer: the data sent to it and the data received from it. Each
 * direction goes through the pipe or is copied directly: the first bytes by the sender, the rest by
 * the receiver, as far as each can map the other's buffer. Both ends make the same decision, from
 * the buffer descriptors that begin a large exchange. Steps never wait.
 */
final class Transfer {
  /** The least bytes, in either direction, for which ranks exchange buffer descriptors. */
  static final long DESCRIPTOR_LIMIT = 8 << 10;

  private static final long SMALL_PIECE = 8 << 10;
  private static final int LONGEST_SWAP = 16 << 10;

  private final int rank;
  private final int peer;
  private final MappedPipe pipe;
  private final BufferDescriptor mine = new BufferDescriptor();
  private final BufferDescriptor theirs = new BufferDescriptor();
  private final SegmentCache segments;

  private HostCall call;
  private boolean swaps;
  private long source;
  private long target;
  private long toSend;
  private long sent;
  private long toReceive;
  private long received;
  private long pieceToSend;
  private long pieceToReceive;

  // Messages besides the pieces, in the order of the pipe: the descriptor, and the notice that this
  // side has copied all that it copies directly.
  private boolean descriptorToSend;
  private boolean descriptorToTake;
  private boolean doneToSend;
  private boolean doneToTake;

  Transfer(int rank, MappedPipe pipe, boolean sameProcess) {
    this.rank = rank;
    this.peer = pipe.peer();
    this.pipe = pipe;
    this.segments = new SegmentCache(peer, sameProcess);
  }

  int peer() {
    return peer;
  }

  /** Begins this worker's part of a call that {@code workers} workers share. */
  void begin(HostCall newCall, int worker, int workers) {
    call = newCall;
    CollectiveCall what = newCall.call();
    long out = what.sendBytes(rank, peer);
    long in = what.receiveBytes(rank, peer);
    // The peer must expect and send the same sizes, or its messages are not taken.
    BoundCall bound = newCall.bound();
    pipe.begin(bound.signature(out, in), bound.signature(in, out));
    int sendParts = Worker.workersFor(out, workers);
    int receiveParts = Worker.workersFor(in, workers);
    long sendBegin = CacheLines.begin(out, sendParts, worker);
    long receiveBegin = CacheLines.begin(in, receiveParts, worker);
    toSend = CacheLines.begin(out, sendParts, worker + 1) - sendBegin;
    toReceive = CacheLines.begin(in, receiveParts, worker + 1) - receiveBegin;
    long inputAt = what.sendOffset(peer) + sendBegin;
    long outputAt = what.receiveOffset(peer) + receiveBegin;
    source = newCall.input() + inputAt;
    target = newCall.output() + outputAt;
    swaps = newCall.swaps();
    sent = 0;
    received = 0;
    pieceToSend = piece(toSend);
    pieceToReceive = piece(toReceive);
    boolean large =
        newCall.way() == TransferMode.DIRECT && Math.max(toSend, toReceive) >= DESCRIPTOR_LIMIT;
    descriptorToSend = large;
    descriptorToTake = large;
    doneToSend = false;
    doneToTake = false;
    if (large) {
      newCall.describe(inputAt, outputAt, segments, mine);
    }
  }

  /** Returns the bytes of a message's pieces; the same at both ends. */
  private long piece(long bytes) {
    return Math.min(pipe.payloadBytes(), Math.max(SMALL_PIECE, CacheLines.roundUp(bytes / 4)));
  }

  boolean isDone() {
    return sent == toSend
        && received == toReceive
        && !descriptorToSend
        && !descriptorToTake
        && !doneToSend
        && !doneToTake;
  }

  /**
   * Moves what can be moved now.
   *
   * @return false if nothing could be
   */
  boolean step() {
    boolean moved = false;
    if (descriptorToSend && pipe.hasRoom()) {
      mine.send(pipe);
      descriptorToSend = false;
      moved = true;
    }
    if (descriptorToTake && pipe.hasMessage()) {
      takeDescriptor();
      moved = true;
    }
    if (sent < toSend && !descriptorToTake && !descriptorToSend && pipe.hasRoom()) {
      long length = Math.min(pieceToSend, toSend - sent);
      HostMemory.copy(pipe.slotToSend() + PAYLOAD_OFFSET, source + sent, length);
      pipe.publish(length);
      sent += length;
      moved = true;
    }
    if (received < toReceive && !descriptorToTake && pipe.hasMessage()) {
      moved |= receive();
    }
    if (doneToSend && sent == toSend && pipe.hasRoom()) {
      pipe.publish(0);
      doneToSend = false;
      moved = true;
    }
    if (doneToTake && received == toReceive && pipe.hasMessage()) {
      pipe.release();
      doneToTake = false;
      moved = true;
    }
    return moved;
  }

  private void takeDescriptor() {
    theirs.read(pipe);
    pipe.release();
    descriptorToTake = false;
    copyDirectly();
  }

  private boolean receive() {
    long length = Math.min(pieceToReceive, toReceive - received);
    // In place, received bytes may only overwrite bytes that were sent.
    if (swaps && received + length > sent) {
      return false;
    }
    HostMemory.copy(target + received, pipe.slotToTake() + PAYLOAD_OFFSET, length);
    pipe.release();
    received += length;
    return true;
  }

  /**
   * Copies this rank's share of the bytes that are copied directly; the rest goes through the pipe.
   */
  private void copyDirectly() {
    if (mine.isInPlace() || theirs.isInPlace()) {
      swap();
      return;
    }
    boolean direct = false;
    if (toSend > 0) {
      boolean pull = theirs.reaches(mine.inputId) || mine.input.isPresent();
      boolean push = mine.reaches(theirs.outputId) || theirs.output.isPresent();
      if (pull || push) {
        push(pushed(toSend, pull, push));
        sent = toSend;
        direct = true;
      }
    }
    if (toReceive > 0) {
      boolean pull = mine.reaches(theirs.inputId) || theirs.input.isPresent();
      boolean push = theirs.reaches(mine.outputId) || mine.output.isPresent();
      if (pull || push) {
        pull(pushed(toReceive, pull, push));
        received = toReceive;
        direct = true;
      }
    }
    doneToSend = direct;
    doneToTake = direct;
  }

  /** Copies the first bytes to the peer's output. */
  private void push(long bytes) {
    if (bytes == 0) {
      return;
    }
    if (theirs.output.isPresent()) {
      SharedSegment segment = segments.use(theirs.output, toSend);
      HostMemory.copy(segment.address() + theirs.output.offset(), source, bytes);
      segment.release();
    } else {
      HostMemory.copy(
          call.registered(peer, theirs.outputId, theirs.outputOffset, toSend), source, bytes);
    }
  }

  /** Copies the bytes from an offset on from the peer's input. */
  private void pull(long from) {
    long bytes = toReceive - from;
    if (bytes == 0) {
      return;
    }
    if (theirs.input.isPresent()) {
      SharedSegment segment = segments.use(theirs.input, toReceive);
      HostMemory.copy(target + from, segment.address() + theirs.input.offset() + from, bytes);
      segment.release();
    } else {
      HostMemory.copy(target + from, theirRegisteredInput() + from, bytes);
    }
  }

  private long theirRegisteredInput() {
    return call.registered(peer, theirs.inputId, theirs.inputOffset, toReceive);
  }

  /** Unmaps the peer's memory, after the last call. */
  void close() {
    segments.close();
  }

  /** Returns how many bytes the sender copies, so that all ranks copy about as much. */
  private long pushed(long bytes, boolean pull, boolean push) {
    if (!pull || !push) {
      return push ? bytes : 0;
    }
    return switch (call.call().collective()) {
      case BROADCAST, SCATTER -> CacheLines.begin(bytes, call.bound().nRanks(), 1);
      case GATHER -> bytes - CacheLines.begin(bytes, call.bound().nRanks(), 1);
      case SEND_RECEIVE -> CacheLines.begin(bytes, 2, 1);
      default -> 0;
    };
  }

  /** Exchanges two parts that each overwrite the other; each rank swaps half of the bytes. */
  private void swap() {
    boolean can =
        mine.isInPlace()
            && theirs.isInPlace()
            && mine.reaches(theirs.inputId)
            && theirs.reaches(mine.inputId);
    if (!can) {
      return; // through the pipe, in step
    }
    long half = CacheLines.begin(toSend, 2, 1);
    long from = rank < peer ? 0 : half;
    long to = rank < peer ? half : toSend;
    long there = theirRegisteredInput();
    // The next slot is free, and belongs to this rank until it publishes the slot.
    long scratch = pipe.slotToSend() + PAYLOAD_OFFSET;
    long piece = Math.min(LONGEST_SWAP, pipe.payloadBytes());
    for (long at = from; at < to; at += piece) {
      long length = Math.min(piece, to - at);
      HostMemory.copy(scratch, source + at, length);
      HostMemory.copy(source + at, there + at, length);
      HostMemory.copy(there + at, scratch, length);
    }
    sent = toSend;
    received = toReceive;
    doneToSend = true;
    doneToTake = true;
  }
}
