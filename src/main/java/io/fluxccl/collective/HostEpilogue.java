// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.Experimental;
import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import java.util.List;

/**
 * A user-defined epilogue on the host device: a Java function of the row. The counterpart of {@link
 * CustomEpilogue}.
 *
 * @param name for messages; the same on every rank
 * @param function gets each row once; several threads call it at the same time
 * @param buffers that the function reads or writes
 */
@Experimental
public record HostEpilogue(String name, RowFunction function, List<DeviceBuffer> buffers)
    implements Epilogue {
  /** The function of an epilogue. */
  @FunctionalInterface
  public interface RowFunction {
    /**
     * Processes a row of the sum over the ranks.
     *
     * @param row its number in the call
     * @param values its elements, already rounded to the call's type; may be overwritten, and is
     *     used again for the next row
     */
    void accept(long row, float[] values);
  }

  /** Refuses null. */
  public HostEpilogue {
    InvalidUsage.requireNonNull(name, "epilogue", "name");
    InvalidUsage.requireNonNull(function, "epilogue", "function");
    buffers = List.copyOf(buffers);
  }

  @Override
  public String signature() {
    return name;
  }

  @Override
  public void check(FusedAllReduce call, BufferCheck check) {
    buffers.forEach(buffer -> check.require("buffer of " + name, buffer, 0, 1));
  }
}
