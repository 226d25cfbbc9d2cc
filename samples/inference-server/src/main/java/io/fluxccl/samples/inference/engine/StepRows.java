// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.inference.engine;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import org.agrona.concurrent.AtomicBuffer;

/**
 * The memory layout of a step's rows: what rank 0 sends to all ranks, what their kernels read, and
 * where the chosen tokens are written. The rows whose token is followed by a new one come first.
 *
 * <pre>
 *   0   int    rows
 *   4   int    chosen: how many of them get a next token
 *   8   int    nucleus: 1 if one of those has a topP below 1
 *   12  int    logits: how many of the first rows' logits rank 0 needs
 *   64  rows of 32 bytes: int token, position, sequence, slot; float temperature, topP; long seed
 *   64 + 32 * maxRows  int: the next token of each chosen row
 * </pre>
 *
 * <p>{@code sequence} is a number below {@link ModelOptions#maxSequences}; {@code slot} is the
 * place of the token's key and value in the cache. From it kernels learn the page of that part of
 * the sequence: pages of earlier tokens have been named by earlier rows.
 */
final class StepRows {
  static final int HEADER = 64;
  static final int ROW = 32;

  private StepRows() {}

  /** One row, as rank 0 composes it. */
  record Row(
      int token, int position, int sequence, int slot, float temperature, float topP, long seed) {}

  /** Returns the bytes of a command with {@code rows} rows. */
  static int commandBytes(int rows) {
    return HEADER + rows * ROW;
  }

  /** Returns the bytes of the memory that kernels share with the host. */
  static int memoryBytes(int maxRows) {
    return HEADER + maxRows * (ROW + Integer.BYTES);
  }

  static byte[] command(Iterable<Row> rows, int count, int chosen) {
    return command(rows, count, chosen, 0);
  }

  static byte[] command(Iterable<Row> rows, int count, int chosen, int logits) {
    ByteBuffer bytes = ByteBuffer.allocate(commandBytes(count)).order(ByteOrder.LITTLE_ENDIAN);
    boolean nucleus = false;
    int at = HEADER;
    for (Row row : rows) {
      nucleus |= row.temperature > 0 && row.topP < 1;
      bytes.putInt(at, row.token).putInt(at + 4, row.position).putInt(at + 8, row.sequence);
      bytes.putInt(at + 12, row.slot).putFloat(at + 16, row.temperature);
      bytes.putFloat(at + 20, row.topP).putLong(at + 24, row.seed);
      at += ROW;
    }
    bytes.putInt(0, count).putInt(4, chosen).putInt(8, nucleus ? 1 : 0);
    bytes.putInt(12, logits);
    return bytes.array();
  }

  static int rows(AtomicBuffer memory) {
    return memory.getInt(0, ByteOrder.LITTLE_ENDIAN);
  }

  static int chosen(AtomicBuffer memory) {
    return memory.getInt(4, ByteOrder.LITTLE_ENDIAN);
  }

  static int logitRows(AtomicBuffer memory) {
    return memory.getInt(12, ByteOrder.LITTLE_ENDIAN);
  }

  static boolean hasNucleus(byte[] command) {
    return command[8] == 1;
  }

  static Row row(AtomicBuffer memory, int index) {
    int at = HEADER + index * ROW;
    ByteOrder little = ByteOrder.LITTLE_ENDIAN;
    return new Row(
        memory.getInt(at, little),
        memory.getInt(at + 4, little),
        memory.getInt(at + 8, little),
        memory.getInt(at + 12, little),
        memory.getFloat(at + 16, little),
        memory.getFloat(at + 20, little),
        memory.getLong(at + 24, little));
  }

  static int nextOffset(int maxRows, int index) {
    return HEADER + maxRows * ROW + index * Integer.BYTES;
  }
}
