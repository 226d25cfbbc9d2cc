// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.testing;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ProcessRanks;
import io.fluxccl.testkit.ResourceLeaks;
import java.io.IOException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/**
 * Warm JVMs on pretended hosts, which are ranks of one job after the other ({@code LongRun}). There
 * are more than a job needs, so that no job waits for the start of a JVM that replaces a killed
 * one.
 */
public final class RankPool implements AutoCloseable {
  private static final Pattern FAILED = Pattern.compile("failed (\\w+) rank=(-?\\d+) at=(-?\\d+)");

  private final ProcessRanks processes;

  /** The processes that are in no job, by host; first those that a job takes next. */
  private final List<Deque<ProcessRank>> idle = new ArrayList<>();

  /** The numbers of all processes that were ever started. */
  private final List<Long> pids = new ArrayList<>();

  /**
   * When a survivor of a kill got its error, in milliseconds since the kill began and had ended.
   */
  public record Death(long millis, long millisAfterEnd) {}

  /**
   * Starts the processes.
   *
   * @param builder starts the class LongRun, which serves jobs
   */
  public RankPool(ProcessRanks.Builder builder, int hosts) {
    processes =
        builder
            .failure("failed")
            .variablesByRank(index -> Map.of("FLUXCCL_HOSTID", "host" + index % hosts))
            .start();
    for (int host = 0; host < hosts; host++) {
      idle.add(new ArrayDeque<>());
    }
    processes.all().forEach(process -> hostOf(process).add(process));
    processes.all().forEach(process -> pids.add(process.pid()));
  }

  private Deque<ProcessRank> hostOf(ProcessRank process) {
    return idle.get(process.rank() % idle.size());
  }

  /**
   * Runs a job until one of its ranks is killed, and checks that the error of each survivor names
   * that rank, and that nothing of the job is left in the survivors.
   *
   * @param ranksPerHost how many consecutive ranks each host has
   * @param kind how the job communicates, in LongRun's words
   * @param delayNanos from the time at which all ranks work to the kill
   * @return when the survivors got their errors
   */
  public List<Death> kill(int nRanks, int ranksPerHost, String kind, int victim, long delayNanos)
      throws IOException {
    String job = "127.0.0.1:" + Ports.reserved() + " " + JobSecret.random().text() + " " + kind;
    List<ProcessRank> survivors = new ArrayList<>();
    for (int rank = 0; rank < nRanks; rank++) {
      survivors.add(idle.get(rank / ranksPerHost).remove());
      survivors.get(rank).sendLine(rank + " " + nRanks + " " + job);
    }
    survivors.forEach(rank -> rank.awaitLine("running"));
    LockSupport.parkNanos(delayNanos);
    ProcessRank killed = survivors.remove(victim);
    long begin = System.nanoTime();
    killed.kill();
    long end = System.nanoTime(); // on a busy machine later than its kill
    List<Death> deaths = new ArrayList<>();
    for (ProcessRank survivor : survivors) {
      long failed = failure(survivor, victim, kind);
      deaths.add(new Death(millis(failed - begin), millis(failed - end)));
    }
    ProcessRank successor = processes.replace(killed.rank());
    pids.add(successor.pid());
    hostOf(successor).addLast(successor);
    for (ProcessRank survivor : survivors) {
      survivor.await(rank -> rank.last("closed") != null, "closed");
      assertThat(survivor.last("closed")).as(survivor.output()).isEqualTo("closed, left: []");
      survivor.forget();
      hostOf(survivor).addFirst(survivor);
    }
    return deaths;
  }

  /** Returns the time at which a survivor got its error. */
  private static long failure(ProcessRank survivor, int victim, String kind) {
    Matcher failed = FAILED.matcher(survivor.awaitLine("failed"));
    String about = kind + ":\n" + survivor.output();
    assertThat(failed.matches()).as(about).isTrue();
    assertThat(failed.group(1)).as(about).isEqualTo("REMOTE_FAILURE");
    assertThat(failed.group(2)).as(about).isEqualTo(Integer.toString(victim));
    // All processes of a machine share this clock.
    return Long.parseLong(failed.group(3));
  }

  private static long millis(long nanos) {
    return TimeUnit.NANOSECONDS.toMillis(nanos);
  }

  /** Checks that the processes end by themselves, and that none has left shared memory. */
  public void assertNothingIsLeft() {
    assertThat(processes.all()).allSatisfy(each -> assertThat(each.end()).isZero());
    assertThat(pids).allSatisfy(pid -> assertThat(ResourceLeaks.segmentsOf(pid)).isEmpty());
  }

  @Override
  public void close() {
    processes.close();
  }
}
