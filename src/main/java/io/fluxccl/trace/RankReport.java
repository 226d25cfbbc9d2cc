// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.trace;

import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.wire.WireReader;
import io.fluxccl.wire.WireWriter;
import java.nio.ByteBuffer;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;

/**
 * The report of one rank about its own state.
 *
 * @param job the job's name; may be empty
 * @param rank from 0
 * @param nRanks how many the job has
 * @param process its process id
 * @param host the name of its host
 * @param nowNs the rank's {@link System#nanoTime} when it made the report
 * @param silentNs the ranks that answer it no heartbeat, and for how long at least
 * @param groups its communicators: the job's first, then those of sub-groups
 */
public record RankReport(
    String job,
    int rank,
    int nRanks,
    long process,
    String host,
    long nowNs,
    Map<Integer, Long> silentNs,
    List<GroupReport> groups) {
  private static final int MAGIC = 0x464c5852;
  private static final int VERSION = 2;
  private static final int MOST_NAME_BYTES = 1 << 16;

  /**
   * Returns the report in the form that {@link #decode} reads.
   *
   * @param all whether with all calls that are kept; otherwise with those in flight and the last
   *     few
   */
  public byte[] encode(boolean all) {
    WireWriter out = new WireWriter().header(MAGIC, VERSION);
    out.string(job).int32(rank).int32(nRanks).int64(process).string(host).int64(nowNs);
    out.int32(silentNs.size());
    silentNs.forEach((silent, since) -> out.int32(silent).int64(since));
    out.int32(groups.size());
    groups.forEach(group -> group.write(out, all));
    return out.toBytes();
  }

  /**
   * Reads a report.
   *
   * @throws TransportFailure if it is none
   */
  public static RankReport decode(byte[] bytes) {
    WireReader in =
        new WireReader(
            ByteBuffer.wrap(bytes),
            problem ->
                new TransportFailure(FluxCclException.NO_RANK, "malformed report: " + problem));
    in.header(MAGIC, VERSION);
    String job = in.string("job", MOST_NAME_BYTES);
    int rank = in.int32("rank");
    int nRanks = in.int32("nRanks");
    long process = in.int64("process");
    String host = in.string("host", MOST_NAME_BYTES);
    long nowNs = in.int64("nowNs");
    Map<Integer, Long> silentNs = new TreeMap<>();
    int silent = in.int32("silent", 0, in.remaining() / (Integer.BYTES + Long.BYTES));
    for (int i = 0; i < silent; i++) {
      silentNs.put(in.int32("silent rank"), in.int64("silentNs"));
    }
    List<GroupReport> groups = GroupReport.list(in, Integer.BYTES, GroupReport::read);
    in.end();
    return new RankReport(job, rank, nRanks, process, host, nowNs, silentNs, groups);
  }
}
