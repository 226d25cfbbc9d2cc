package io.fluxccl.collective.host;

import io.fluxccl.device.host.HostMemory;

/**
 * Where things lie in the memory that a rank gives the others to write to, its arena: a pipe for
 * each strand and each peer.
 *
 * <pre>
 *   pipe    [0, 64)     how many items of this rank's the peer has taken; the peer writes it
 *           [64, ...)   slots
 *   slot    [0, 8)      number of the item that is there, from 1; written last, with release
 *           [8, 16)     of a message's piece: bytes of the whole message. Of a card: the same, as
 *                       their complement, so that no piece is ever taken for a card
 *           [16, 24)    how many items the writer has taken from the reader's pipe
 *           [24, 52)    of a card: ids of the registrations of input and output or -1, where in
 *                       them the bytes for the reader begin, and those from it go, flags
 *           [56, 64)    of a card: bytes of the message that the writer expects
 *           [64, ...)   payload; of a card: where buffers lie that are not registered (Shown),
 *                       the input, then the output
 * </pre>
 */
final class PipeDescriptor {
  static final int CACHE_LINE = 64;

  /** Slots of a pipe: enough that a rank which is late for a moment stops nobody. */
  static final int SLOTS = 16;

  /** The most bytes of an item: a few of them fit a core's second-level cache. */
  static final int PAYLOAD = 32 << 10;

  static final int NUMBER_OFFSET = 0;
  static final int MESSAGE_OFFSET = 8;
  static final int TAKEN_OFFSET = 16;
  static final int INPUT_ID_OFFSET = 24;
  static final int OUTPUT_ID_OFFSET = 28;
  static final int INPUT_OFFSET_OFFSET = 32;
  static final int OUTPUT_OFFSET_OFFSET = 40;
  static final int FLAGS_OFFSET = 48;
  static final int EXPECTED_OFFSET = 56;
  static final int INPUT_SHOWN_OFFSET = CACHE_LINE;
  static final int OUTPUT_SHOWN_OFFSET = CACHE_LINE + Shown.LENGTH;

  private static final int SLOT_LENGTH = CACHE_LINE + PAYLOAD;
  private static final int PIPE_LENGTH = CACHE_LINE + SLOTS * SLOT_LENGTH;

  private PipeDescriptor() {}

  /** Bytes of an arena. */
  static long arenaLength(int nRanks, int strands) {
    return (long) nRanks * strands * PIPE_LENGTH;
  }

  /** Where in a rank's arena the pipe begins that a peer writes. */
  static long pipe(int writer, int strand, int nRanks) {
    return ((long) strand * nRanks + writer) * PIPE_LENGTH;
  }

  /** Where in a pipe the slot of the item with that number begins. */
  static long slot(long number) {
    return CACHE_LINE + (number & SLOTS - 1) * SLOT_LENGTH;
  }

  /** Readies an arena: nothing is there, nothing was taken. Leaves the payloads untouched. */
  static void clear(long arena, int nRanks, int strands) {
    for (long pipe = arena; pipe < arena + arenaLength(nRanks, strands); pipe += PIPE_LENGTH) {
      HostMemory.fill(pipe, CACHE_LINE, (byte) 0);
      for (int slot = 0; slot < SLOTS; slot++) {
        HostMemory.fill(pipe + slot(slot), CACHE_LINE, (byte) 0);
      }
    }
  }
}
