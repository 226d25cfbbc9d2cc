// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib;

import static org.assertj.core.api.Assertions.assertThat;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/**
 * The calls of libibverbs, with their arguments, that connections over several ports and link
 * layers make. A JVM of its own loads a libibverbs that checks and notes them ({@code
 * src/test/native/fakeverbs}), beside emulated GPUs.
 */
@Tag("multiprocess")
@Timeout(120)
@Tag("jdk")
class VerbsCallsTest {
  private static final Path SHIM = Path.of("target", "fakeverbs").toAbsolutePath();
  private static final Path FAKE_CUDA = Path.of("target", "fakecuda").toAbsolutePath();
  private static final int SIZE = 100_000;

  @TempDir private Path root;

  /** Runs the scenarios that its arguments name, and prints what they found. */
  static final class Scenarios {
    public static void main(String[] args) throws Exception {
      System.out.println(VerbsLibrary.deviceNames());
      for (String chosen : args[1].split(";")) {
        RdmaDevices.Device device =
            RdmaDevices.find(Path.of(args[0]), VerbsLibrary.deviceNames(), chosen).get(0);
        boolean onGpus = args[2].equals("gpus");
        try (IbRanks ranks = onGpus ? onGpus(device) : new IbRanks(device)) {
          ranks.exchange(SIZE);
        }
        System.out.println("right over " + device.label());
      }
      // After close() returns, the agents' threads destroy the verbs objects.
      Awaitility.await()
          .until(
              () ->
                  Thread.getAllStackTraces().keySet().stream()
                      .noneMatch(thread -> thread.getName().startsWith("fluxccl-ib")));
      System.out.println("done");
      System.exit(0);
    }

    private static IbRanks onGpus(RdmaDevices.Device device) {
      return new IbRanks(VerbsLibrary.get(), device, 1 << 20, CudaDevice::open);
    }
  }

  /** The kernel's files of the shim's devices: two ports each, the GIDs that the shim has. */
  private void describeDevices() throws IOException {
    for (String name : List.of("fake0", "fake1")) {
      String layer = name.equals("fake1") ? "Ethernet" : "InfiniBand";
      for (int number = 1; number <= 2; number++) {
        String gid = "fe80:0000:0000:0000:0000:0000:%04x:".formatted(number);
        String[] gids = {gid + "0001 v1", gid + "0002", gid + "0003"};
        RdmaDevicesTest.add(root, name, number, "4: ACTIVE", layer, gids);
      }
    }
  }

  private List<String> run(String chosen, String devices) throws Exception {
    assumeTrue(Files.exists(SHIM.resolve("libibverbs.so.1")), "the fake libibverbs was not built");
    assumeTrue(
        getClass().getResource("/io/fluxccl/native/linux-x86_64/libdisni.so") != null,
        "libdisni.so was not built");
    describeDevices();
    Path log = root.resolve("log");
    Map<String, String> environment =
        Map.of(
            "LD_LIBRARY_PATH",
            SHIM + ":" + FAKE_CUDA,
            "FAKE_CUDA_EMULATE",
            "1",
            "FAKE_CUDA_DEVICES",
            "2",
            "FAKE_VERBS_LOG",
            log.toString());
    List<String> said = new ArrayList<>();
    try (ProcessRank child =
        TestJvms.of(1, Scenarios.class, root.toString(), chosen, devices)
            .jvmOptions("-XX:TieredStopAtLevel=1")
            .variables(environment)
            .startRank(0)) {
      for (String line = child.readLine(); line != null; line = child.readLine()) {
        said.add(line);
      }
    }
    assertThat(said).contains("[fake1, fake0]", "done");
    return Files.readAllLines(log);
  }

  private static long count(List<String> calls, String start) {
    return calls.stream().filter(call -> call.startsWith(start)).count();
  }

  @Test
  void shouldConnectPortsAboveOneByGidAndByLid() throws Exception {
    List<String> calls = run("fake1:2;fake0:2;fake1=fe80::1:3", "host");
    // RoCE on port 2: the first GID of RoCE v2, at both ends.
    assertThat(calls)
        .contains(
            "INIT port=2 access=2",
            "RTR port=2 mtu=3 global=1 gid_index=1 dgid=2:2 lid=0 reads=1",
            "RTS timeout=16 retries=6 rnr=6");
    // RoCE on port 1, by the GID that was asked for.
    assertThat(calls).contains("RTR port=1 mtu=5 global=1 gid_index=2 dgid=1:3 lid=0 reads=1");
    // InfiniBand on port 2: its LID, no GID.
    assertThat(calls).contains("RTR port=2 mtu=3 global=0 gid_index=0 dgid=0:0 lid=12 reads=1");
    assertThat(count(calls, "create_qp send=256 inline=64")).isEqualTo(count(calls, "destroy_qp"));
    assertThat(count(calls, "dealloc_pd")).isEqualTo(count(calls, "open "));
    assertThat(count(calls, "close ")).isEqualTo(count(calls, "open "));
  }

  @Test
  void shouldRegisterGpuMemoryByDmaBuf() throws Exception {
    assumeTrue(Files.exists(FAKE_CUDA.resolve("libcuda.so.1")), "the fake driver was not built");
    List<String> calls = run("fake1", "gpus");
    // Parts of one allocation of 2 MiB each, at their offsets.
    assertThat(calls)
        .anyMatch(
            call ->
                call.matches("reg_dmabuf_mr offset=[0-9]+ length=100008 size=2097152 access=3"));
    assertThat(count(calls, "reg_dmabuf_mr")).isEqualTo(4);
    // By their addresses only the words for greetings and signals.
    assertThat(calls.stream().filter(call -> call.startsWith("reg_mr")))
        .isNotEmpty()
        .allMatch(call -> call.equals("reg_mr length=2056 access=3"));
  }
}
