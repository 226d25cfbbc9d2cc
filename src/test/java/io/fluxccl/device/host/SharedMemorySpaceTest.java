// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import org.assertj.core.api.InstanceOfAssertFactories;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class SharedMemorySpaceTest {
  private static final long MIB = 1 << 20;

  @TempDir Path root;
  private Path proc;
  private Path cgroup;

  @BeforeEach
  void write() throws IOException {
    proc = root.resolve("proc");
    cgroup = root.resolve("cgroup");
    put("proc/meminfo", "MemTotal: 8192000 kB\nMemAvailable:    1024000 kB\nBuffers: 1 kB\n");
  }

  private void put(String path, String text) throws IOException {
    Path file = root.resolve(path);
    Files.createDirectories(file.getParent());
    Files.writeString(file, text);
  }

  private SharedMemorySpace space() {
    return new SharedMemorySpace(Path.of("/dev/shm"), proc, cgroup);
  }

  @Test
  void shouldRefuseMoreThanTheFileSystemHas() {
    assertThat(space().shortage(65 * MIB, 64 * MIB, 1024 * MIB))
        .get(InstanceOfAssertFactories.STRING)
        .contains("/dev/shm has 67108864 bytes free", "1073741824 bytes of memory")
        .contains("--shm-size", "FLUXCCL_SHM_DIR");
    assertThat(space().shortage(64 * MIB, 64 * MIB, 1024 * MIB)).isEmpty();
  }

  @Test
  void shouldRefuseMoreThanTheMemoryThoughTheFileSystemIsLarger() {
    long memory = 1000 * MIB;
    assertThat(space().shortage(memory - SharedMemorySpace.RESERVE, 24_000 * MIB, memory))
        .isEmpty();
    assertThat(space().shortage(memory - SharedMemorySpace.RESERVE + 1, 24_000 * MIB, memory))
        .get(InstanceOfAssertFactories.STRING)
        .contains("25165824000 bytes free", "1048576000 bytes of memory")
        .contains("container's memory limit");
  }

  @Test
  void shouldUseTheMachinesMemoryIfThereIsNoLimit() throws IOException {
    assertThat(space().memory()).isEqualTo(1024000 * 1024L);
    put("proc/self/cgroup", "0::/job\n");
    put("cgroup/job/memory.max", "max\n");
    put("cgroup/job/memory.current", "5\n");
    assertThat(space().memory()).isEqualTo(1024000 * 1024L);
  }

  @Test
  void shouldUseTheLowestControlGroupLimitWithoutFileCache() throws IOException {
    put("proc/self/cgroup", "0::/pod/job\n");
    put("cgroup/pod/job/memory.max", "max\n");
    put("cgroup/pod/job/memory.current", "5\n");
    put("cgroup/pod/memory.max", Long.toString(100 * MIB));
    put("cgroup/pod/memory.current", Long.toString(90 * MIB));
    put("cgroup/pod/memory.stat", "anon 5\ninactive_file 1048576\nactive_file 2097152\n");
    assertThat(space().memory()).isEqualTo(13 * MIB);
  }

  @Test
  void shouldKnowTheControlGroupsOfVersionOne() throws IOException {
    put("proc/self/cgroup", "5:cpu:/x\n4:memory:/job\n0::/\n");
    put("cgroup/memory/job/memory.limit_in_bytes", Long.toString(100 * MIB));
    put("cgroup/memory/job/memory.usage_in_bytes", Long.toString(60 * MIB));
    put("cgroup/memory/memory.limit_in_bytes", "9223372036854771712");
    put("cgroup/memory/memory.usage_in_bytes", "1000");
    assertThat(space().memory()).isEqualTo(40 * MIB);
  }

  @Test
  void shouldCountClaimsOfOtherThreads() throws IOException {
    long available = SharedMemorySpace.RESERVE + 8192;
    put("proc/meminfo", "MemAvailable: " + available / 1024 + " kB\n");
    SharedMemorySpace space = space();
    long half = 4096;
    assertThat(space.claim(half)).isEmpty();
    assertThat(space.claim(half)).isEmpty();
    assertThat(space.claim(1)).isPresent();
    space.unclaim(half);
    assertThat(space.claim(half)).isEmpty();
    assertThat(space.claim(1)).isPresent();
  }

  @Test
  void shouldReportNoShortageIfFreeMemoryIsUnknown() throws IOException {
    Files.delete(proc.resolve("meminfo"));
    assertThat(space().shortage(MIB, 2 * MIB, space().memory())).isEmpty();
  }
}
