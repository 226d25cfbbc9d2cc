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

  private void awaitDump(int host, String tls, String target, String pattern) {
    Map<String, String> variables =
        Map.of(
            "FLUXCCL_SECRET",
            secret,
            "FLUXCCL_TLS",
            tls,
            FOLDER,
            folder.resolve("" + host).toString());
    DumpTest.awaitDump(job.hosts().inside(host), variables, target, pattern);
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
    awaitDump(0, tls, job.address(), "3 ranks, of which 3 answer");
    awaitDump(1, tls, pid(LAST_RANK), "3 ranks, of which 3 answer");

    job.rank(LAST_RANK).stop();
    String last =
        "rank 2 does not answer, and in all-reduce \\d+ of lane 0 " + DumpTest.waiting(0, 1);
    awaitDump(0, tls, job.address(), last);
    awaitDump(0, tls, pid(1), last);
    awaitDump(1, tls, job.address(), last);
    job.rank(LAST_RANK).resume();

    // The root's rank: only a file of this host still says where the ranks are.
    job.rank(0).stop();
    String root =
        "rank 0 does not answer, and in all-reduce \\d+ of lane 0 " + DumpTest.waiting(1, 2);
    awaitDump(1, tls, job.address(), root);
    job.rank(0).resume();
    job.awaitMoreSteps();

    job.hosts().cut();
    awaitDump(0, tls, job.address(), last);
    awaitDump(1, tls, pid(LAST_RANK), "ranks 0 and 1 do not answer, and in all-reduce");
    job.hosts().mend();
    job.awaitMoreSteps();
  }
}
