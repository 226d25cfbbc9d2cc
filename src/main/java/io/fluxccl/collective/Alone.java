package io.fluxccl.collective;

import io.fluxccl.device.DeviceStream;

/** What is left of a collective when there is one rank: a copy, unless it is in place. */
final class Alone {
  private Alone() {}

  static void enqueue(CollectiveCall call, DeviceStream stream) {
    long bytes = call.outputBytes(0, 1);
    boolean receivesItself =
        call.collective() != Collective.SEND_RECEIVE
            || call.source() == 0 && call.destination() == 0;
    if (bytes > 0 && receivesItself && !call.isInPlace(0, 1)) {
      stream.copy(call.output(), 0, call.input(), 0, bytes);
    }
  }
}
