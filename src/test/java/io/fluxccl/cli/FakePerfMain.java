// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.cli;

import io.fluxccl.cli.FakeBackend.Fault;

/**
 * The command line with ranks that have a process each. PRETEND={@code rank:fault} makes one of
 * them faulty.
 */
final class FakePerfMain {
  static final String VARIABLE = "PRETEND";

  private FakePerfMain() {}

  public static void main(String[] args) {
    FakeBackend backend =
        new FakeBackend() {
          @Override
          public PerfRank fromEnvironment(RankOptions options) {
            System.err.println("pid " + ProcessHandle.current().pid());
            return super.fromEnvironment(options);
          }
        };
    String[] pretend = System.getenv().getOrDefault(VARIABLE, "").split(":");
    if (pretend.length == 2) {
      backend.setFault(Fault.valueOf(pretend[1]), Integer.parseInt(pretend[0]), 0);
    }
    RootCommand.start(backend, FakePerfMain.class, args);
  }
}
