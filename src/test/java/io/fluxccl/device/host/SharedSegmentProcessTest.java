// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.testkit.ResourceLeaks;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

@Tag("multiprocess")
@Timeout(60)
@Tag("jdk")
class SharedSegmentProcessTest {
  private static final int SIZE = 1 << 20;

  /** Owns a segment and increments its first word forever. */
  static final class Owner {
    public static void main(String[] args) {
      SharedSegment segment = SharedSegment.create(SIZE);
      HostMemory.putLong(segment.address() + SIZE - 8, 4711);
      System.out.println(HexFormat.of().formatHex(segment.name().encode()));
      long deadline = System.nanoTime() + 60_000_000_000L;
      for (long i = 1; System.nanoTime() < deadline; i++) {
        HostMemory.putLongRelease(segment.address(), i);
        Thread.yield();
      }
    }
  }

  /** Opens a host device twice and prints the failures. */
  static final class OpensTwice {
    public static void main(String[] args) {
      for (int i = 0; i < 2; i++) {
        try (HostDevice device = HostDevice.create()) {
          System.out.println("opened " + device.allocate(8));
        } catch (InvalidUsage e) {
          System.out.println(e.getMessage());
        }
      }
    }
  }

  /** Counts files of dead processes, as its first use of the directory. */
  static final class Counts {
    public static void main(String[] args) {
      System.out.println(SegmentDirectory.countFiles(Set.of(999999999L, 999999998L)));
      System.out.println(SegmentDirectory.countFiles(Set.of()));
    }
  }

  @Test
  void shouldCountFilesOfDeadProcessesBeforeDeletingThem(@TempDir Path directory) throws Exception {
    for (String name : List.of("999999999-1-1", "999999998-1-2", "999999997-1-1", "x")) {
      Files.createFile(directory.resolve("fluxccl-" + name));
    }
    Map<String, String> environment = Map.of("FLUXCCL_SHM_DIR", directory.toString());
    try (ProcessRank child = TestJvms.of(1, Counts.class).variables(environment).startRank(0)) {
      assertThat(child.readLine()).isEqualTo("2");
      assertThat(child.readLine()).isEqualTo("0");
    }
  }

  @Test
  void shouldNameTheVariableOnEachOpenIfItsDirectoryIsMissing() throws Exception {
    Map<String, String> environment = Map.of("FLUXCCL_SHM_DIR", "/proc/nowhere");
    try (ProcessRank child = TestJvms.of(1, OpensTwice.class).variables(environment).startRank(0)) {
      String problem = "FLUXCCL_SHM_DIR=/proc/nowhere: there is no such directory; ";
      assertThat(child.readLine()).startsWith(problem);
      assertThat(child.readLine()).startsWith(problem);
    }
  }

  @Test
  void shouldOutliveAnOwnerThatIsKilledAndLeaveNoFile() throws Exception {
    try (ProcessRank owner = TestJvms.start(Owner.class)) {
      SegmentName name = SegmentName.decode(HexFormat.of().parseHex(owner.readLine()));
      assertThat(name.pid()).isEqualTo(owner.pid());
      SharedSegment segment = SharedSegment.open(name);
      Awaitility.await().until(() -> HostMemory.getLongAcquire(segment.address()) > 100);
      assertThat(HostMemory.getLong(segment.address() + SIZE - 8)).isEqualTo(4711);

      owner.kill();

      long last = HostMemory.getLongAcquire(segment.address());
      assertThat(HostMemory.getLong(segment.address() + SIZE - 8)).isEqualTo(4711);
      HostMemory.putLong(segment.address() + 4096, 5);
      assertThat(HostMemory.getLong(segment.address() + 4096)).isEqualTo(5);
      assertThat(HostMemory.getLongAcquire(segment.address())).isEqualTo(last);
      assertThat(ResourceLeaks.segmentsOf(owner.pid())).isEmpty();
      assertThatThrownBy(() -> SharedSegment.open(name))
          .isInstanceOf(DeviceFailure.class)
          .hasMessageContaining("process " + owner.pid());
      segment.release();
    }
  }
}
