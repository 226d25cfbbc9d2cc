// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import io.fluxccl.Experimental;
import io.fluxccl.concurrent.UseCount;
import java.nio.ByteBuffer;
import java.util.Optional;

/** Memory that a {@link HostBuffer} is a part of. Counts its users, and starts with one. */
@Experimental
public abstract class HostRange extends UseCount {
  HostRange() {}

  /** Returns the address of its first byte in this process. */
  public abstract long address();

  /** Returns a view of a part; the caller holds a user for as long as it uses the view. */
  abstract Optional<ByteBuffer> asByteBuffer(long offset, long size);

  /** Copies the remaining bytes to this memory. */
  abstract void put(long offset, ByteBuffer source);

  /** Fills the buffer from this memory. */
  abstract void get(long offset, ByteBuffer target);
}
