// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective.channel;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.collective.ReductionOrder;
import io.fluxccl.device.DeviceStream;
import java.util.function.BiConsumer;
import java.util.function.Predicate;

/**
 * A {@link PipeAlgorithm} on one kind of device.
 *
 * @param method the operations and their costs
 * @param canLaunch whether the device's kernel can do a call that the method supports
 * @param launch launches the kernel
 */
record ChannelAlgorithm(
    PipeAlgorithm method,
    Predicate<BoundCall> canLaunch,
    BiConsumer<DeviceStream, BoundCall> launch)
    implements CollectiveAlgorithm {
  @Override
  public String name() {
    return method.label();
  }

  @Override
  public boolean supports(BoundCall call) {
    return method.supports(call) && canLaunch.test(call);
  }

  @Override
  public double estimate(BoundCall call) {
    return method.estimate(call);
  }

  @Override
  public ReductionOrder order(BoundCall call) {
    return method.order(call);
  }

  @Override
  public void enqueue(DeviceStream stream, BoundCall call) {
    launch.accept(stream, call);
  }
}
