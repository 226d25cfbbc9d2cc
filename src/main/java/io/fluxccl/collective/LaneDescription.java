// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.Text;
import io.fluxccl.TransportFailure;
import io.fluxccl.bootstrap.Bootstrap;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceKind;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.cuda.GpuLink;
import io.fluxccl.settings.Settings;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.stream.IntStream;

/**
 * The message that each rank sends its peers when it opens a lane, in the single exchange of {@link
 * LaneOpening}.
 *
 * @param lane the lane's number on that rank, which its leave notices repeat
 * @param threads a kernel of the host device can have on that rank
 * @param device that rank's device
 * @param settings texts that must be the same on every rank, so that all choose the same algorithms
 */
record LaneDescription(long lane, int threads, DeviceDescription device, List<String> settings) {
  private static final int MAGIC = 0x464c4c44; // FLLD
  private static final int VERSION = 2;
  private static final int MOST_SETTINGS = 16;
  private static final int MOST_BYTES = 64 * 1024;

  byte[] encode() {
    WireWriter out = new WireWriter().header(MAGIC, VERSION).int64(lane).int32(threads);
    device.write(out);
    out.int32(settings.size());
    settings.forEach(out::string);
    return out.toBytes();
  }

  /**
   * Reads a description.
   *
   * @param bytes as a peer sent them; not trusted
   * @param peer the sender, for the error
   * @throws TransportFailure if they are malformed
   */
  static LaneDescription decode(byte[] bytes, int peer) {
    WireReader in =
        new WireReader(
            bytes,
            problem ->
                TransportFailure.of(
                    peer, "rank %d sent a malformed description of its lane: %s", peer, problem));
    in.header(MAGIC, VERSION);
    long lane = in.int64("lane");
    int threads = in.int32("threads", 1, Integer.MAX_VALUE);
    DeviceDescription device = DeviceDescription.read(in);
    List<String> settings = new ArrayList<>();
    for (int left = in.int32("settings", 0, MOST_SETTINGS); left > 0; left--) {
      settings.add(in.string("setting", MOST_BYTES));
    }
    in.end();
    return new LaneDescription(lane, threads, device, List.copyOf(settings));
  }

  /** Refuses another rank's description with a setting that differs from this rank's. */
  void requireSameSettings(int rank, LaneDescription other, int peer) {
    for (int i = 0; i < Math.max(settings.size(), other.settings.size()); i++) {
      String mine = i < settings.size() ? settings.get(i) : "nothing";
      String theirs = i < other.settings.size() ? other.settings.get(i) : "nothing";
      if (!mine.equals(theirs)) {
        throw InvalidUsage.of(
            "collectives on rank %d: %s, on rank %d: %s; give all ranks the same options, tuning"
                + " file and class path",
            rank, mine, peer, theirs);
      }
    }
  }

  /**
   * The device of a rank, as its peers see it.
   *
   * @param kind of the device
   * @param multiprocessors of a GPU; 0 on the host
   * @param computeCapability of a GPU, {@code 10 * major + minor}; 0 on the host
   * @param networks transports by which ranks of other hosts can reach its memory
   * @param pciBusId of a GPU, the same in every process that sees it; empty on the host
   * @param nvlinks PCI bus ids of the GPUs that this rank sees at the other end of an NVLink
   * @param link the link to all GPUs that the user has set; empty to use the driver's answer
   */
  record DeviceDescription(
      DeviceKind kind,
      int multiprocessors,
      int computeCapability,
      TransportFlags networks,
      String pciBusId,
      List<String> nvlinks,
      String link) {
    static final String LINK_VARIABLE = "FLUXCCL_GPU_LINK";
    static final String NVLINK = "nvlink";
    static final String PCIE = "pcie";

    private static final int MOST_BUS_ID_BYTES = 64;
    private static final int MOST_LINKS = 256;

    /** Describes a device. */
    static DeviceDescription of(Device device, TransportFlags networks) {
      DeviceKind kind = device.kind();
      if (device instanceof CudaDevice gpu) {
        return new DeviceDescription(
            kind,
            gpu.multiprocessors(),
            gpu.computeCapability(),
            networks,
            gpu.pciBusId(),
            IntStream.range(0, CudaDriver.count())
                .filter(other -> other != gpu.index())
                .filter(other -> CudaDriver.link(gpu.index(), other) == GpuLink.NVLINK)
                .mapToObj(CudaDriver::pciBusId)
                .toList(),
            Settings.ofProcess().word(LINK_VARIABLE).orElse(""));
      }
      return new DeviceDescription(kind, 0, 0, networks, "", List.of(), "");
    }

    /** Returns whether both sides' descriptions say that the GPUs of two ranks have an NVLink. */
    boolean hasNvlinkTo(DeviceDescription peer) {
      if (link.equals(PCIE) || peer.link.equals(PCIE)) {
        return false;
      }
      // A process may see its own GPU only.
      return pciBusId.equals(peer.pciBusId)
          || nvlinks.contains(peer.pciBusId)
          || peer.nvlinks.contains(pciBusId)
          || link.equals(NVLINK)
          || peer.link.equals(NVLINK);
    }

    /**
     * Returns why algorithms that need NVLink can't be used: two GPUs of one host without one.
     *
     * @param devices GPUs by rank
     * @param bootstrap knows which ranks share a host
     * @return the reason, the same on every rank; empty if there is an NVLink between all
     */
    static String withoutNvlinkBecause(List<DeviceDescription> devices, Bootstrap bootstrap) {
      for (int one = 0; one < devices.size(); one++) {
        for (int other = 0; other < one; other++) {
          if (bootstrap.hostHash(one) == bootstrap.hostHash(other)
              && !devices.get(one).hasNvlinkTo(devices.get(other))) {
            return Text.of(
                "GPUs %s of rank %d and %s of rank %d are not known to have an NVLink",
                devices.get(other).pciBusId(), other, devices.get(one).pciBusId(), one);
          }
        }
      }
      return "";
    }

    void write(WireWriter out) {
      out.int32(kind.ordinal()).int32(multiprocessors).int32(computeCapability);
      out.int32(networks.bits()).string(pciBusId).int32(nvlinks.size());
      nvlinks.forEach(out::string);
      out.string(link);
    }

    static DeviceDescription read(WireReader in) {
      DeviceKind[] kinds = DeviceKind.values();
      int networks = (1 << Transport.values().length) - 1;
      return new DeviceDescription(
          kinds[in.int32("kind", 0, kinds.length - 1)],
          in.int32("multiprocessors", 0, Integer.MAX_VALUE),
          in.int32("computeCapability", 0, Integer.MAX_VALUE),
          TransportFlags.ofBits(in.int32("networks", 0, networks)),
          in.string("pciBusId", MOST_BUS_ID_BYTES),
          IntStream.range(0, in.int32("nvlinks", 0, MOST_LINKS))
              .mapToObj(i -> in.string("nvlink", MOST_BUS_ID_BYTES))
              .toList(),
          in.string("link", MOST_BUS_ID_BYTES));
    }

    /**
     * Returns how many ranks of one process share a GPU at most. Processes that share a GPU take
     * turns, so they don't count.
     *
     * @param devices GPUs by rank
     * @param bootstrap knows which ranks share a process
     */
    static int mostRanksPerGpu(List<DeviceDescription> devices, Bootstrap bootstrap) {
      Map<String, Integer> sharing = new HashMap<>();
      for (int rank = 0; rank < devices.size(); rank++) {
        String gpu = bootstrap.processHash(rank) + " " + devices.get(rank).pciBusId();
        sharing.merge(gpu, 1, Integer::sum);
      }
      return sharing.values().stream().mapToInt(Integer::intValue).max().orElse(1);
    }

    /**
     * Returns a warning if two processes share a GPU.
     *
     * @param devices GPUs by rank
     * @param bootstrap knows which ranks share a host and a process
     */
    static Optional<String> sharingWarning(List<DeviceDescription> devices, Bootstrap bootstrap) {
      for (int one = 0; one < devices.size(); one++) {
        for (int other = 0; other < one; other++) {
          if (devices.get(one).pciBusId().equals(devices.get(other).pciBusId())
              && bootstrap.hostHash(one) == bootstrap.hostHash(other)
              && bootstrap.processHash(one) != bootstrap.processHash(other)) {
            return Optional.of(
                Text.of(
                    "ranks %d and %d are processes that share GPU %s: the GPU runs one of them at a"
                        + " time, for milliseconds, so waiting for the other is slow; start as many"
                        + " ranks as there are GPUs",
                    other, one, devices.get(one).pciBusId()));
          }
        }
      }
      return Optional.empty();
    }
  }
}
