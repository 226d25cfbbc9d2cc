package io.fluxccl.transport.ethernet;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceKind;

/** Which memory goes through pinned memory on its way to and from sockets. */
interface StagingPolicy {
  /** Memory that sockets can't reach: that of a GPU. */
  StagingPolicy WHERE_NEEDED = buffer -> buffer.device().kind() != DeviceKind.HOST;

  /** All memory, also that of the host: the path of a GPU's memory, for whoever has no GPU. */
  StagingPolicy ALWAYS = buffer -> true;

  /** Whether that memory is staged; the same answer each time. */
  boolean stages(DeviceBuffer buffer);

  /**
   * What {@link EthernetTransport#STAGING_PROPERTY} asks for.
   *
   * @throws InvalidUsage if it is neither {@code auto} nor {@code always}
   */
  static StagingPolicy choose() {
    String wanted = System.getProperty(EthernetTransport.STAGING_PROPERTY, "auto");
    switch (wanted) {
      case "auto":
        return WHERE_NEEDED;
      case "always":
        return ALWAYS;
      default:
        throw new InvalidUsage(
            EthernetTransport.STAGING_PROPERTY + "=" + wanted + "; give auto or always");
    }
  }
}
