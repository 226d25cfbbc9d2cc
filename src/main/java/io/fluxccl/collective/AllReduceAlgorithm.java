package io.fluxccl.collective;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.DeviceStream;

/** One way to all-reduce a buffer that was fixed when it was prepared. */
interface AllReduceAlgorithm extends AutoCloseable {
  /** Enqueues one all-reduce of the buffer's first {@code count} elements, in place. */
  void enqueue(DeviceStream stream, long count, DataType type, ReduceOp op);

  /** Its name, for diagnostics. */
  String name();

  @Override
  void close();
}
