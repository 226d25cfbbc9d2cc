// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.faults;

import static io.fluxccl.faults.SteadyJob.FOLDER;
import static io.fluxccl.faults.SteadyJob.LAST_RANK;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.bootstrap.JobSecret;
import java.nio.file.Path;
import java.util.Map;
import java.util.Optional;
import org.agrona.CloseHelper;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** {@code fluxccl dump} on each of two hosts of a job, whose files are each host's own. */
@Tag("faults")
@Timeout(600)
class DumpAcrossHostsTest {
  private static final int LIMIT_SECONDS = 240;
  private static final Optional<String> MISSING = TwoHosts.missing();

  private final String secret = JobSecret.random().text();
  @TempDir private Path folder;
  private TwoHosts hosts;
  private SteadyJob job;

  @AfterEach
  void end() {
    CloseHelper.closeAll(job, hosts);
  }

  private DumpProcess on(int host, String tls) {
    Map<String, String> variables =
        Map.of(
            "FLUXCCL_SECRET",
            secret,
            "FLUXCCL_TLS",
            tls,
            FOLDER,
            folder.resolve("" + host).toString());
    return new DumpProcess(hosts.inside(host), variables);
  }

  private String pid(int rank) {
    return Long.toString(job.rank(rank).process().pid());
  }

  @ParameterizedTest
  @ValueSource(strings = {"0", "1"})
  void shouldNameTheRankFromEitherHost(String tls) throws Exception {
    assumeTrue(MISSING.isEmpty(), () -> MISSING.orElse(""));
    hosts = new TwoHosts();
    job =
        new SteadyJob(
            hosts,
            LIMIT_SECONDS,
            Map.of("FLUXCCL_SECRET", secret, "FLUXCCL_TLS", tls, FOLDER, folder.toString()));
    DumpProcess first = on(0, tls);
    DumpProcess second = on(1, tls);
    first.verdict(job.address(), "3 ranks, of which 3 answer");
    second.verdict(pid(LAST_RANK), "3 ranks, of which 3 answer");

    job.rank(LAST_RANK).process().stop();
    String last =
        "rank 2 does not answer, and in all-reduce \\d+ of lane 0 " + DumpProcess.waiting(0, 1);
    first.verdict(job.address(), last);
    first.verdict(pid(1), last);
    second.verdict(job.address(), last);
    job.rank(LAST_RANK).process().resume();

    // The root's rank: only a file of this host still says where the ranks are.
    job.rank(0).process().stop();
    String root =
        "rank 0 does not answer, and in all-reduce \\d+ of lane 0 " + DumpProcess.waiting(1, 2);
    second.verdict(job.address(), root);
    job.rank(0).process().resume();
    job.awaitMoreSteps();

    hosts.cut();
    first.verdict(job.address(), last);
    second.verdict(pid(LAST_RANK), "ranks 0 and 1 do not answer, and in all-reduce");
    hosts.mend();
    job.awaitMoreSteps();
  }
}
