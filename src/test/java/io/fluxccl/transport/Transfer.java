// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.atomic.AtomicLong;

/**
 * A connection, memory of its rank, and memory of the other rank that it writes.
 *
 * @param back the other end
 * @param target the memory to write, as its owner sees it
 * @param remote the same memory, as the writer sees it
 */
public record Transfer(
    Connection link,
    Connection back,
    RegisteredMemory source,
    RegisteredMemory target,
    RegisteredMemory remote) {

  /** Writes all of the source. */
  public Transfer write() {
    return write(0, 0, source.size());
  }

  /** Writes a part of the source. */
  public Transfer write(long targetOffset, long sourceOffset, long size) {
    link.write(remote, targetOffset, source, sourceOffset, size);
    return this;
  }

  /** Sets a word of the target after all earlier writes. */
  public Transfer signal(long offset, AtomicLong counter, long value) {
    link.updateAndSync(remote, offset, counter, value);
    return this;
  }

  /** Begins a flush of all that was written. */
  public CompletableFuture<Void> flushing() {
    return link.flush(ConnectedRanks.LIMIT);
  }

  /** Waits for a flush of all that was written. */
  public void flush() throws Exception {
    ConnectedRanks.get(flushing());
  }

  /** Asserts that a part of the source is in the target. */
  public void assertWritten(long targetOffset, long sourceOffset, long size) {
    Contents.assertSame(target, targetOffset, source, sourceOffset, (int) size);
  }

  /** Asserts that all of the source is in the target. */
  public void assertWritten() {
    assertWritten(0, 0, source.size());
  }

  /** Writes all of the source, and asserts after a flush that it has arrived. */
  public void check() throws Exception {
    write().flush();
    assertWritten();
  }

  /** Deregisters all memory. */
  public void closeMemory() {
    source.close();
    remote.close();
    target.close();
  }
}
