package io.fluxccl.collective.channel;

import io.fluxccl.collective.BoundCall;
import io.fluxccl.collective.CollectiveAlgorithm;
import io.fluxccl.device.DeviceStream;
import java.util.function.Predicate;

/** A {@link Method} on one kind of device. */
final class ChannelAlgorithm implements CollectiveAlgorithm {
  private final Method method;
  private final Predicate<BoundCall> canLaunch;
  private final Launch launch;

  /** Launches a kernel of the device. */
  interface Launch {
    void enqueue(DeviceStream stream, BoundCall call);
  }

  ChannelAlgorithm(Method method, Predicate<BoundCall> canLaunch, Launch launch) {
    this.method = method;
    this.canLaunch = canLaunch;
    this.launch = launch;
  }

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
  public void enqueue(DeviceStream stream, BoundCall call) {
    launch.enqueue(stream, call);
  }
}
