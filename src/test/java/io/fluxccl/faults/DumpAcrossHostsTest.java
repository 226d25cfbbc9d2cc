// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static io.fluxccl.faults.SteadyJob.FOLDER;
import static io.fluxccl.faults.SteadyJob.LAST_RANK;

import io.fluxccl.bootstrap.JobSecret;
import java.nio.file.Path;
import java.util.Map;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.extension.RegisterExtension;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** {@code fluxccl dump} on each of two hosts of a job, whose files are each host's own. */
@Tag("faults")
@Timeout(600)
class DumpAcrossHostsTest {
  private static final int LIMIT_SECONDS = 240;

  private final String secret = JobSecret.random().text();
  @RegisterExtension final SteadyJob job = new SteadyJob();
  @TempDir private Path folder;

  private DumpProcess on(int host, String tls) {
    return new DumpProcess(
        job.hosts().inside(host),
        Map.of(
            "FLUXCCL_SECRET", secret, "FLUXCCL_TLS", tls, FOLDER, folder.resolve("" + host) + ""));
  }

  private String pid(int rank) {
    return Long.toString(job.rank(rank).pid());
  }

  @ParameterizedTest
  @ValueSource(strings = {"0", "1"})
  void shouldNameTheRankFromEitherHost(String tls) {
    job.start(
        TwoHosts.routed(),
        folder,
        LIMIT_SECONDS,
        Map.of("FLUXCCL_SECRET", secret, "FLUXCCL_TLS", tls));
    DumpProcess first = on(0, tls);
    DumpProcess second = on(1, tls);
    first.verdict(job.address(), "3 ranks, of which 3 answer");
    second.verdict(pid(LAST_RANK), "3 ranks, of which 3 answer");

    job.rank(LAST_RANK).stop();
    String last =
        "rank 2 does not answer, and in all-reduce \\d+ of lane 0 " + DumpProcess.waiting(0, 1);
    first.verdict(job.address(), last);
    first.verdict(pid(1), last);
    second.verdict(job.address(), last);
    job.rank(LAST_RANK).resume();

    // The root's rank: only a file of this host still says where the ranks are.
    job.rank(0).stop();
    String root =
        "rank 0 does not answer, and in all-reduce \\d+ of lane 0 " + DumpProcess.waiting(1, 2);
    second.verdict(job.address(), root);
    job.rank(0).resume();
    job.awaitMoreSteps();

    job.hosts().cut();
    first.verdict(job.address(), last);
    second.verdict(pid(LAST_RANK), "ranks 0 and 1 do not answer, and in all-reduce");
    job.hosts().mend();
    job.awaitMoreSteps();
  }
}
