// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.InvalidUsage;
import io.fluxccl.TransportFailure;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.util.ArrayList;
import java.util.List;

/**
 * The message that each rank sends its peers when it opens a lane, in the single exchange of {@link
 * LaneOpening}.
 *
 * @param lane the lane's number on that rank, which its {@link LeaveNotices} repeat
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
}
