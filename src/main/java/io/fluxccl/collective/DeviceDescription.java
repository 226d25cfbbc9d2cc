package io.fluxccl.collective;

import io.fluxccl.TransportFailure;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;

/**
 * What ranks tell each other of their devices before they connect.
 *
 * <pre>
 *   byte version, byte kind, int32 multiprocessors, int32 compute capability, int32 networks as bits,
 *   then the PCI bus id in ASCII; little-endian
 * </pre>
 *
 * @param kind of the device
 * @param multiprocessors of a GPU; 0 of the host
 * @param computeCapability of a GPU, {@code 10 * major + minor}; 0 of the host
 * @param networks transports by which ranks of other hosts can reach its memory
 * @param pciBusId of a GPU, the same in every process that sees it; empty of the host
 */
record DeviceDescription(
    DeviceKind kind,
    int multiprocessors,
    int computeCapability,
    TransportFlags networks,
    String pciBusId) {
  private static final byte VERSION = 3;
  private static final int HEADER = 2 + 3 * Integer.BYTES;
  private static final int MAX_BUS_ID = 64;

  static DeviceDescription of(Device device, TransportFlags networks) {
    return device instanceof CudaDevice gpu
        ? new DeviceDescription(
            DeviceKind.CUDA,
            gpu.multiprocessors(),
            gpu.computeCapability(),
            networks,
            gpu.pciBusId())
        : new DeviceDescription(device.kind(), 0, 0, networks, "");
  }

  byte[] encode() {
    byte[] busId = pciBusId.getBytes(StandardCharsets.US_ASCII);
    return ByteBuffer.allocate(HEADER + busId.length)
        .order(ByteOrder.LITTLE_ENDIAN)
        .put(VERSION)
        .put((byte) kind.ordinal())
        .putInt(multiprocessors)
        .putInt(computeCapability)
        .putInt(networks.bits())
        .put(busId)
        .array();
  }

  /**
   * Reads a card.
   *
   * @param bytes as a peer sent them
   * @param peer who, for the error
   * @throws TransportFailure if they are none
   */
  static DeviceDescription decode(byte[] bytes, int peer) {
    DeviceKind[] kinds = DeviceKind.values();
    ByteBuffer in = ByteBuffer.wrap(bytes).order(ByteOrder.LITTLE_ENDIAN);
    if (bytes.length < HEADER
        || bytes.length > HEADER + MAX_BUS_ID
        || bytes[0] != VERSION
        || bytes[1] < 0
        || bytes[1] >= kinds.length
        || in.getInt(2) < 0
        || in.getInt(6) < 0
        || in.getInt(10) >>> Transport.values().length != 0) {
      throw new TransportFailure(
          peer,
          "rank " + peer + " sent a malformed device description of " + bytes.length + " bytes");
    }
    return new DeviceDescription(
        kinds[bytes[1]],
        in.getInt(2),
        in.getInt(6),
        TransportFlags.ofBits(in.getInt(10)),
        new String(bytes, HEADER, bytes.length - HEADER, StandardCharsets.US_ASCII));
  }
}
