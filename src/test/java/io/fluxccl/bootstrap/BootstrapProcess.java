// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.stream.Collectors;

/** A rank in its own process: gathers, prints the result, and leaves as its argument says. */
final class BootstrapProcess {
  private BootstrapProcess() {}

  /**
   * @param args {@code gather}: gathers and leaves. {@code stay}: also waits for a message with tag
   *     1 from rank 0 before it leaves
   */
  public static void main(String[] args) {
    RankEnvironment environment = RankEnvironment.fromEnvironment();
    Deadline deadline = Deadline.after(Duration.ofSeconds(60));
    try (TcpBootstrap bootstrap =
        TcpBootstrap.create(
            environment.rank(), environment.nRanks(), BootstrapOptions.defaults())) {
      bootstrap.initialize(environment).join();
      byte[] mine = ("r" + bootstrap.rank()).getBytes(StandardCharsets.UTF_8);
      List<byte[]> all = bootstrap.allGather(mine, deadline).join();
      String got = all.stream().map(String::new).collect(Collectors.joining(","));
      // In one piece, because the ranks of mpirun share an output.
      System.out.println(
          "rank %d local %d/%d got %s"
              .formatted(bootstrap.rank(), bootstrap.localRank(), bootstrap.nRanksPerNode(), got));
      if (args[0].equals("stay")) {
        bootstrap.recv(environment.nRanks() - 1, 1, deadline).join();
      }
      bootstrap.barrier(deadline).join();
    } catch (RuntimeException e) {
      System.out.println("failed: " + FluxCclException.from(e).getMessage());
      throw e;
    }
  }
}
