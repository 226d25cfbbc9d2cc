package io.fluxccl.netplugin.ib;

import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.PointerType;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.ib.IbTransport;
import io.fluxccl.transport.ib.RdmaDevices;
import java.io.IOException;
import java.net.Inet4Address;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;

/**
 * An RDMA device.
 *
 * @param name as the kernel calls it
 * @param address at which its listeners are
 * @param speedMbps what its first port says, or a guess where it says nothing
 * @param pciPath the device's folder below {@code /sys}, or null where it is emulated
 * @param guid tells devices apart
 */
record IbNetDevice(String name, Inet4Address address, int speedMbps, String pciPath, long guid) {
  /** What is assumed of a device that does not say how fast it is: 10 Gbit/s. */
  static final int UNKNOWN_SPEED_MBPS = 10_000;

  private static final Path SYSFS = Path.of("/sys/class/infiniband");

  /** What drivers of hardware show of it, and Soft-RoCE and Soft-iWARP do not. */
  private static final List<String> OF_HARDWARE = List.of("hca_type", "board_id", "hw_rev");

  private static final Pattern RATE = Pattern.compile("([0-9.]+)\\s*Gb/sec.*", Pattern.DOTALL);
  private static final int MAX_COMMS = 65536;
  // Unknown, for the reason that TcpDevice gives.
  private static final float LATENCY_MICROS = 0;

  /** Those of this machine that IB0 to IB7 name and that can be used. */
  static List<IbNetDevice> usable() {
    IbTransport transport = new IbTransport();
    List<IbNetDevice> found = new ArrayList<>();
    List<RdmaDevices.Device> all = RdmaDevices.ofThisMachine();
    for (int i = 0; i < Math.min(all.size(), IbTransport.MAX_DEVICES); i++) {
      Transport each = Transport.values()[Transport.IB0.ordinal() + i];
      if (transport.unavailableBecause(each).isEmpty()) {
        found.add(read(SYSFS, all.get(i).name(), all.get(i).address()));
      }
    }
    return List.copyOf(found);
  }

  /** Whether a device is one of hardware, not Soft-RoCE or Soft-iWARP. */
  static boolean isHardware(Path sysfs, String name) {
    return OF_HARDWARE.stream().anyMatch(file -> Files.exists(sysfs.resolve(name).resolve(file)));
  }

  static IbNetDevice read(Path sysfs, String name, Inet4Address address) {
    Path folder = sysfs.resolve(name);
    return new IbNetDevice(
        name,
        address,
        speedOf(folder.resolve("ports")),
        isHardware(sysfs, name) ? pciPathOf(folder) : null,
        guidOf(folder, name));
  }

  private static int speedOf(Path ports) {
    try (Stream<Path> all = Files.list(ports)) {
      Path first = all.sorted().findFirst().orElse(ports);
      Matcher rate = RATE.matcher(Files.readString(first.resolve("rate")));
      int speed = rate.matches() ? (int) (Double.parseDouble(rate.group(1)) * 1000) : 0;
      return speed > 0 ? speed : UNKNOWN_SPEED_MBPS;
    } catch (IOException | NumberFormatException e) {
      return UNKNOWN_SPEED_MBPS;
    }
  }

  private static String pciPathOf(Path folder) {
    try {
      return folder.resolve("device").toRealPath().toString();
    } catch (IOException e) {
      return null;
    }
  }

  private static long guidOf(Path folder, String name) {
    try {
      String text = Files.readString(folder.resolve("node_guid")).strip().replace(":", "");
      return Long.parseUnsignedLong(text, 16);
    } catch (IOException | NumberFormatException e) {
      return name.hashCode();
    }
  }

  NetProperties properties() {
    return new NetProperties(
        name,
        pciPath,
        guid,
        Set.of(PointerType.HOST),
        false,
        false,
        speedMbps,
        1,
        LATENCY_MICROS,
        MAX_COMMS,
        1,
        IbNetMemory.MAX_MESSAGE);
  }
}
