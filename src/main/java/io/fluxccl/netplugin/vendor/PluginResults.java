package io.fluxccl.netplugin.vendor;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetResult;
import java.util.Locale;

/** What a plugin's results mean. */
final class PluginResults {
  private PluginResults() {}

  /**
   * The failure for a result.
   *
   * @param code as the plugin gave it, positive
   * @param plugin whose it is
   * @param call what was asked
   */
  static FluxCclException failure(int code, String plugin, String call) {
    NetResult result = NetResult.of(code);
    String message =
        String.format(
            "%s: %s failed with %s (%s); see what it logged",
            plugin, call, result.name().toLowerCase(Locale.ROOT).replace('_', ' '), code);
    return switch (result) {
      case INVALID_USAGE, INVALID_ARGUMENT -> new InvalidUsage(message);
      case REMOTE_ERROR -> new RemoteFailure(FluxCclException.NO_RANK, message);
      case UNHANDLED_CUDA_ERROR -> new DeviceFailure(0, "UNKNOWN", message);
      default -> new TransportFailure(FluxCclException.NO_RANK, message);
    };
  }
}
