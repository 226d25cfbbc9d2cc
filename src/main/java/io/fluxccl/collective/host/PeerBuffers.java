// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.collective.Collective;
import io.fluxccl.collective.CollectiveCall;
import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.device.host.SharedSegment;

/**
 * The buffers of all ranks in one reduction of a worker, as their descriptors say: whether this
 * rank can access them, and where. Used by one thread at a time.
 */
final class PeerBuffers {
  private final int rank;
  private final MappedPipe[] pipes;
  private final BufferDescriptor mine = new BufferDescriptor();
  private final BufferDescriptor[] descriptors;
  private final SegmentCache[] segments;
  private final SharedSegment[] inUse;
  private int nInUse;
  private HostCall call;
  private CollectiveCall what;
  private long from;
  private boolean toReceive;

  PeerBuffers(int rank, MappedPipe[] pipes, boolean[] sameProcess) {
    this.rank = rank;
    this.pipes = pipes;
    this.descriptors = new BufferDescriptor[pipes.length];
    this.segments = new SegmentCache[pipes.length];
    for (int i = 0; i < pipes.length; i++) {
      descriptors[i] = i == rank ? mine : new BufferDescriptor();
      segments[i] = new SegmentCache(i, sameProcess[i]);
    }
    this.inUse = new SharedSegment[2 * pipes.length];
  }

  /**
   * Begins a call, whose range starts {@code newFrom} bytes after the start of the buffers. In a
   * direct call this sends this rank's descriptor to all peers.
   *
   * @return false if the communicator was aborted
   */
  boolean begin(HostCall newCall, long newFrom) {
    call = newCall;
    what = newCall.call();
    from = newFrom;
    toReceive = false;
    if (newCall.way() != HostCall.TransferMode.DIRECT) {
      return true;
    }
    newCall.describe(newFrom, newFrom, segments[rank], mine);
    for (int i = 1; i < pipes.length; i++) {
      MappedPipe pipe = pipes[(rank + i) % pipes.length];
      if (pipe.claim() == 0) {
        return false;
      }
      mine.send(pipe);
    }
    toReceive = true;
    return true;
  }

  /** Returns whether peers may be able to access this rank's input. */
  boolean isInputAccessible() {
    return toReceive && (mine.inputId != BufferDescriptor.NONE || mine.input.isPresent());
  }

  /** Receives the peers' descriptors, if there are any left; returns false if aborted. */
  boolean receive() {
    for (int i = 1; i < pipes.length && toReceive; i++) {
      int peer = (rank + i) % pipes.length;
      if (pipes[peer].take() == 0) {
        return false;
      }
      descriptors[peer].read(pipes[peer]);
      pipes[peer].release();
    }
    toReceive = false;
    return true;
  }

  /**
   * Returns whether all ranks can access the buffers that a reduction needs. All ranks get the same
   * answer, because all have the same descriptors.
   */
  boolean areAccessible() {
    return allHaveReferences() || allAreRegistered();
  }

  private boolean allHaveReferences() {
    for (BufferDescriptor each : descriptors) {
      if (!each.input.isPresent()
          || what.collective() == Collective.ALL_REDUCE && !each.output.isPresent()) {
        return false;
      }
    }
    return true;
  }

  private boolean allAreRegistered() {
    for (BufferDescriptor each : descriptors) {
      boolean input = each.inputId == mine.inputId;
      boolean output =
          what.collective() != Collective.ALL_REDUCE
              || each.outputId == mine.outputId && each.outputId != BufferDescriptor.NONE;
      if (!input || !output) {
        return false;
      }
    }
    return mine.inputId != BufferDescriptor.NONE;
  }

  /** Returns whether all ranks can write to the root's output. */
  boolean isRootsOutputAccessible() {
    if (mine.input.isPresent()) {
      return descriptors[what.root()].output.isPresent();
    }
    for (BufferDescriptor each : descriptors) {
      if (!each.reaches(descriptors[what.root()].outputId)) {
        return false;
      }
    }
    return true;
  }

  /** Returns the address in a rank's input, {@code at} bytes after this worker's first byte. */
  long input(int of, long at, long bytes) {
    BufferDescriptor their = descriptors[of];
    return of == rank
        ? call.input() + from + at
        : place(of, their.input, their.inputId, their.inputOffset, at, bytes);
  }

  /** Returns the address in a rank's output, likewise. */
  long output(int of, long at, long bytes) {
    BufferDescriptor their = descriptors[of];
    return of == rank
        ? call.output() + from + at
        : place(of, their.output, their.outputId, their.outputOffset, at, bytes);
  }

  private long place(int of, SegmentReference reference, int id, long offset, long at, long bytes) {
    if (!reference.isPresent()) {
      return call.registered(of, id, offset, at + bytes) + at;
    }
    SharedSegment segment = segments[of].use(reference, at + bytes);
    inUse[nInUse++] = segment;
    return segment.address() + reference.offset() + at;
  }

  /** Releases the segments whose addresses were returned in this call. */
  void release() {
    while (nInUse > 0) {
      inUse[--nInUse].release();
    }
  }

  /** Unmaps the peers' memory, after the last call. */
  void close() {
    for (SegmentCache each : segments) {
      each.close();
    }
  }
}
