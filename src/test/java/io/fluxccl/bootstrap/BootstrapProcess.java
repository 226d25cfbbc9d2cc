// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.bootstrap;

import io.fluxccl.Deadline;
import io.fluxccl.FluxCclException;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.List;
import java.util.stream.Collectors;

/** A rank in a process of its own: gathers, says what it got, and does as it is told. */
final class BootstrapProcess {
  private BootstrapProcess() {}

  /**
   * @param args {@code gather}: gathers and leaves. {@code stay}: then waits for a message of tag 1
   *     of rank 0 and leaves
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
      System.out.println(
          "rank "
              + bootstrap.rank()
              + " local "
              + bootstrap.localRank()
              + "/"
              + bootstrap.nRanksPerNode()
              + " got "
              + all.stream()
                  .map(each -> new String(each, StandardCharsets.UTF_8))
                  .collect(Collectors.joining(",")));
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
