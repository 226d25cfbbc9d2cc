// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.FluxCclException;
import io.fluxccl.ReduceOp;
import io.fluxccl.device.IntView;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.transport.Transport;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Flux;

/** Processes that exceed their limit of open files and sockets. */
@Tag("multiprocess")
@Timeout(180)
class DescriptorLimitTest {
  private static final int LIMIT = 256;

  /** Opens groups until an operation fails, and prints the failure. */
  static final class Greedy {
    private static final int RANKS = 8;
    private static final Duration LONG = Duration.ofSeconds(60);
    private static final ClassLoader LOADER = RankGroup.class.getClassLoader();

    private Greedy() {}

    /** Loads all classes of the library, as a jar would stay open from the first one on. */
    private static void loadClasses() throws Exception {
      Path classes =
          Path.of(RankGroup.class.getProtectionDomain().getCodeSource().getLocation().toURI());
      try (Stream<Path> files = Files.walk(classes)) {
        for (Path file : files.filter(each -> each.toString().endsWith(".class")).toList()) {
          String name = classes.relativize(file).toString().replace('/', '.');
          try {
            Class.forName(name.substring(0, name.length() - ".class".length()), false, LOADER);
          } catch (LinkageError e) {
            continue; // it needs an optional library
          }
        }
      }
    }

    public static void main(String[] args) {
      try {
        loadClasses();
        while (true) {
          reduce();
        }
      } catch (Throwable e) {
        FluxCclException failure = FluxCclException.from(e);
        System.out.println("failed " + failure.code() + " " + failure.getMessage());
        failure.printStackTrace();
      }
      System.exit(0);
    }

    private static void reduce() {
      JoinOptions options = JoinOptions.of(0, 1).withDevice(DeviceChoice.HOST);
      options = options.withCollectives(options.collectives().withTransport(Transport.ETHERNET));
      Flux.fromIterable(RankGroup.local(RANKS, options))
          .flatMap(
              group -> {
                IntView x = group.device().allocateInts(1 << 10);
                return group.collectives().allReduce(x, ReduceOp.SUM);
              })
          .blockLast(LONG);
    }
  }

  @Test
  void shouldFailWithTheLimitAndItsRemedy() {
    try (ProcessRank process =
        TestJvms.of(1, Greedy.class)
            .prefix(List.of("sh", "-c", "ulimit -n " + LIMIT + "; exec \"$@\"", "sh"))
            .startRank(0)) {
      String failed = process.awaitLine("failed ");
      // A socket, shared memory, or what the rank that meets the limit tells the others.
      assertThat(failed)
          .matches("failed (TRANSPORT|DEVICE|REMOTE)_FAILURE .*")
          .contains("too many open files (limit " + LIMIT + "); raise it with ulimit -n");
    }
  }
}
