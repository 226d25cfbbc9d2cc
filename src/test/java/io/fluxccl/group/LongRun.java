package io.fluxccl.group;

import io.fluxccl.DataType;
import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.collective.AllReduce;
import io.fluxccl.collective.AllReduceOptions;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.transport.Transport;
import java.time.Duration;

/**
 * A rank that all-reduces until something fails, then says what and when, on the clock that all
 * processes of a machine share. Started by {@link RankDeathTest}.
 */
final class LongRun {
  private LongRun() {}

  public static void main(String[] args) {
    AllReduceOptions options =
        AllReduceOptions.DEFAULT.withTimeout(Duration.ofMillis(Long.parseLong(args[0])));
    if (!args[1].equals("auto")) {
      options = options.withTransport(Transport.valueOf(args[1]));
    }
    String outcome = "none";
    try (RankGroup group = RankGroup.fromEnvironment().join()) {
      DeviceBuffer buffer = group.device().allocate(1 << 18);
      AllReduce allReduce = group.allReduce(buffer, options).join();
      System.out.println("running");
      try {
        while (true) {
          allReduce.enqueue(1 << 16, DataType.INT32, ReduceOp.SUM);
          allReduce.enqueue(100, DataType.INT32, ReduceOp.SUM);
          allReduce.completion().join();
        }
      } catch (RuntimeException e) {
        FluxCclException failure = FluxCclException.from(e);
        outcome =
            "failed " + failure.code() + " rank=" + failure.rank() + " at=" + System.nanoTime();
        System.out.println(outcome);
        System.out.println(failure.getMessage());
      }
    }
    System.out.println("closed");
  }
}
