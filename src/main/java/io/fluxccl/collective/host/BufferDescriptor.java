// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.host;

import io.fluxccl.collective.host.SegmentCache.SegmentReference;
import io.fluxccl.collective.pipe.MappedPipe;
import io.fluxccl.collective.pipe.SlotRing;
import io.fluxccl.device.host.HostMemory;

/**
 * Describes a rank's buffers to a peer before a large call, so that both ends make the same
 * decision which of them copies directly. Sent through the pipe, in a slot of its own:
 *
 * <pre>
 *   header     ids of the registrations of input and output, or -1; where in them the bytes for the
 *              reader begin, and those from it go; flags
 *   payload    segment references of buffers that are not registered: the input, then the output
 * </pre>
 *
 * <p>Mutable, one for each peer.
 */
final class BufferDescriptor {
  /** The id of a buffer that is not registered. */
  static final int NONE = -1;

  /** Input and output are the same memory, and several peers use it. */
  static final int IN_PLACE = 1;

  private static final int HAS_INPUT = 2;
  private static final int HAS_OUTPUT = 4;

  private static final int INPUT_ID_OFFSET = SlotRing.HEADER_OFFSET;
  private static final int OUTPUT_ID_OFFSET = INPUT_ID_OFFSET + Integer.BYTES;
  private static final int INPUT_OFFSET_OFFSET = OUTPUT_ID_OFFSET + Integer.BYTES;
  private static final int OUTPUT_OFFSET_OFFSET = INPUT_OFFSET_OFFSET + Long.BYTES;
  private static final int FLAGS_OFFSET = OUTPUT_OFFSET_OFFSET + Long.BYTES;
  private static final int INPUT_OFFSET = SlotRing.PAYLOAD_OFFSET;
  private static final int OUTPUT_OFFSET = INPUT_OFFSET + SegmentReference.LENGTH;

  int inputId = NONE;
  int outputId = NONE;
  long inputOffset;
  long outputOffset;
  int flags;

  /** The input, if it is not registered but was used before. */
  final SegmentReference input = new SegmentReference();

  /** The output, if it is not registered but was used before. */
  final SegmentReference output = new SegmentReference();

  /** Returns whether the rank described here can reach what is registered under an id. */
  boolean reaches(int id) {
    // A rank knows the addresses of the registrations that its own buffers lie in.
    return id != NONE && (inputId == id || outputId == id);
  }

  boolean isInPlace() {
    return (flags & IN_PLACE) != 0;
  }

  /** Sends this through a pipe that has room. */
  void send(MappedPipe pipe) {
    long slot = pipe.slotToSend();
    HostMemory.putInt(slot + INPUT_ID_OFFSET, inputId);
    HostMemory.putInt(slot + OUTPUT_ID_OFFSET, outputId);
    HostMemory.putLong(slot + INPUT_OFFSET_OFFSET, inputOffset);
    HostMemory.putLong(slot + OUTPUT_OFFSET_OFFSET, outputOffset);
    int sentFlags = flags;
    if (input.isPresent()) {
      sentFlags |= HAS_INPUT;
      input.write(slot + INPUT_OFFSET);
    }
    if (output.isPresent()) {
      sentFlags |= HAS_OUTPUT;
      output.write(slot + OUTPUT_OFFSET);
    }
    HostMemory.putInt(slot + FLAGS_OFFSET, sentFlags);
    pipe.publish(0);
  }

  /** Reads the descriptor in the slot that a pipe takes next, without taking it. */
  void read(MappedPipe pipe) {
    long slot = pipe.slotToTake();
    inputId = HostMemory.getInt(slot + INPUT_ID_OFFSET);
    outputId = HostMemory.getInt(slot + OUTPUT_ID_OFFSET);
    inputOffset = HostMemory.getLong(slot + INPUT_OFFSET_OFFSET);
    outputOffset = HostMemory.getLong(slot + OUTPUT_OFFSET_OFFSET);
    flags = HostMemory.getInt(slot + FLAGS_OFFSET);
    input.clear();
    if ((flags & HAS_INPUT) != 0) {
      input.read(slot + INPUT_OFFSET);
    }
    output.clear();
    if ((flags & HAS_OUTPUT) != 0) {
      output.read(slot + OUTPUT_OFFSET);
    }
  }
}
