// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.host;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.junit.jupiter.api.Assumptions.assumeFalse;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.ArgumentMatchers.anyLong;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import com.code_intelligence.jazzer.junit.FuzzTest;
import io.fluxccl.DeviceFailure;
import io.fluxccl.InvalidUsage;
import io.fluxccl.testing.OtherUser;
import io.fluxccl.testkit.ResourceLeaks;
import java.io.IOException;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.util.List;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;
import net.jqwik.api.constraints.LongRange;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

@net.jqwik.api.Tag("jdk")
class SharedSegmentTest {
  @Test
  void shouldZeroAndShareASegmentUntilItsLastUserReleasesIt() throws Exception {
    SharedSegment segment = SharedSegment.create(10_000);
    String mapping = Long.toHexString(segment.address()) + "-";
    assertThat(segment.address() % 4096).isZero();
    for (int i = 0; i < 1250; i++) {
      assertThat(HostMemory.getLong(segment.address() + 8L * i)).isZero();
    }
    assertThat(ResourceLeaks.segmentsOf(ProcessHandle.current().pid())).isEmpty();
    SharedSegment second = SharedSegment.open(segment.name());
    HostMemory.putLong(segment.address() + 800, 42);
    assertThat(HostMemory.getLong(second.address() + 800)).isEqualTo(42);

    second.release();
    segment.retain();
    segment.release();
    assertThat(ResourceLeaks.mappings()).anyMatch(each -> each.startsWith(mapping));
    segment.release();

    assertThat(ResourceLeaks.mappings()).noneMatch(each -> each.startsWith(mapping));
    assertThat(segment.users()).isZero();
    assertThat(segment.tryRetain()).isFalse();
    assertRefused(segment::retain);
    assertRefused(segment::release);
    assertThrows(DeviceFailure.class, () -> SharedSegment.open(segment.name()));
    assertThat(SharedSegment.retainOwned(segment.name())).isEmpty();
  }

  @Test
  void shouldRefuseSizesThatCannotBeMapped() {
    for (long size : new long[] {-1, 0, SharedSegment.MAX_SIZE + 1, Long.MAX_VALUE}) {
      assertRefused(() -> SharedSegment.create(size), "size=" + size);
    }
  }

  @Test
  void shouldRefuseANameThatMatchesNoOpenFileOfTheOwner() {
    SharedSegment segment = SharedSegment.create(4096);
    SegmentName n = segment.name();
    for (SegmentName wrong :
        List.of(
            new SegmentName(n.pid(), n.descriptor(), n.inode() + 1, n.device(), n.size()),
            new SegmentName(n.pid(), n.descriptor(), n.inode(), n.device() + 1, n.size()),
            new SegmentName(n.pid(), n.descriptor(), n.inode(), n.device(), n.size() + 1),
            new SegmentName(n.pid(), n.descriptor(), n.inode(), n.device(), n.size() - 1),
            new SegmentName(n.pid(), 0, n.inode(), n.device(), n.size()),
            new SegmentName(n.pid(), 999_999, n.inode(), n.device(), n.size()),
            new SegmentName(Integer.MAX_VALUE, n.descriptor(), n.inode(), n.device(), n.size()))) {
      assertThrows(DeviceFailure.class, () -> SharedSegment.open(wrong));
    }
    segment.release();
  }

  @Test
  void shouldReportFreeSpaceIfTheFileSystemIsFull() throws IOException {
    FileChannel full = mock(FileChannel.class);
    when(full.write(any(java.nio.ByteBuffer.class), anyLong()))
        .thenThrow(new IOException("No space left on device"));
    assertThrows(
        DeviceFailure.class,
        () -> SharedSegment.fill(full, 1 << 20, SegmentDirectory.space()),
        "No space left",
        "bytes are free",
        "--shm-size");
  }

  @Test
  void shouldKeepAnInterruptAndStillCreate() {
    Thread.currentThread().interrupt();
    SharedSegment segment = SharedSegment.create(4096);
    SharedSegment opened = SharedSegment.open(segment.name());
    assertThat(Thread.interrupted()).isTrue();
    opened.release();
    segment.release();
  }

  @Test
  void shouldSweepFilesOfDeadProcessesOnly(@TempDir Path directory) throws IOException {
    String own = SegmentDirectory.fileName("7");
    String reused = "fluxccl-" + ProcessHandle.current().pid() + "-1-1";
    for (String name : List.of(own, reused, "fluxccl-999999999-5-1", "fluxccl-notes")) {
      Files.createFile(directory.resolve(name));
    }
    SegmentDirectory.sweep(directory);
    assertThat(directory.toFile().list()).containsExactlyInAnyOrder(own, "fluxccl-notes");
  }

  @Test
  void shouldChooseTheDirectoryNamedElseSharedMemoryElseTemporaryFiles(@TempDir Path directory) {
    assertThat(SegmentDirectory.choose("/some/where", directory)).hasToString("/some/where");
    assertThat(SegmentDirectory.choose(null, directory)).isEqualTo(directory);
    assertThat(SegmentDirectory.choose(" ", directory.resolve("absent")))
        .isEqualTo(Path.of(System.getProperty("java.io.tmpdir")));
  }

  @Test
  void shouldRefuseADirectoryThatIsMissingOrNoDirectoryOrReadOnly(@TempDir Path directory)
      throws IOException {
    SegmentDirectory.check(null);
    SegmentDirectory.check(" ");
    SegmentDirectory.check(directory.toString());
    Path missing = directory.resolve("missing");
    Path file = Files.createFile(directory.resolve("file"));
    assertUnusable(missing, "there is no such directory");
    assertUnusable(file, "it is no directory");
    Path link = Files.createSymbolicLink(directory.resolve("link"), directory);
    SegmentDirectory.check(link.toString());
    if (Files.getAttribute(Path.of("/proc/self"), "unix:uid").equals(0)) {
      OtherUser.give(link);
      assertUnusable(link, link + " is a link of user");
    }
    Path readOnly = Files.createDirectory(directory.resolve("read-only"));
    Files.setPosixFilePermissions(readOnly, PosixFilePermissions.fromString("r-xr-xr-x"));
    assumeFalse(Files.isWritable(readOnly), "root may write everywhere");
    assertUnusable(readOnly, "this user must not write there");
  }

  private static void assertUnusable(Path directory, String problem) {
    assertThatThrownBy(() -> SegmentDirectory.check(directory.toString()))
        .isInstanceOf(InvalidUsage.class)
        .hasMessageStartingWith("FLUXCCL_SHM_DIR=" + directory + ": " + problem);
  }

  @Test
  void shouldNotLeakAfterManyRounds() {
    SharedSegment.create(1).release();
    ResourceLeaks before = ResourceLeaks.snapshot();
    for (int i = 0; i < 100; i++) {
      SharedSegment segment = SharedSegment.create(8192);
      SharedSegment.open(segment.name()).release();
      segment.release();
      assertThrows(DeviceFailure.class, () -> SharedSegment.open(segment.name()));
    }
    before.assertNone(Duration.ofSeconds(10));
  }

  @Property
  void shouldReadBackEveryName(
      @ForAll @LongRange(min = 1) long pid,
      @ForAll @IntRange int descriptor,
      @ForAll long inode,
      @ForAll long device,
      @ForAll @LongRange(min = 1, max = SharedSegment.MAX_SIZE) long size) {
    SegmentName name = new SegmentName(pid, descriptor, inode, device, size);
    assertThat(SegmentName.decode(name.encode())).isEqualTo(name);
  }

  @Property
  void shouldRefuseBytesThatAreNoName(@ForAll byte[] bytes) {
    assertRefused(() -> SegmentName.decode(bytes));
  }

  @Property
  void shouldRefuseOrReadBackANameWithOneByteChanged(
      @ForAll @IntRange(max = SegmentName.ENCODED_LENGTH - 1) int index, @ForAll byte value) {
    byte[] bytes = new SegmentName(1, 2, 3, 4, 5).encode();
    bytes[index] = value;
    decodeOrRefuse(bytes);
  }

  @FuzzTest(maxDuration = "75s")
  void shouldDecodeOrRefuseAnyBytes(byte[] bytes) {
    decodeOrRefuse(bytes);
  }

  private static void decodeOrRefuse(byte[] bytes) {
    SegmentName name;
    try {
      name = SegmentName.decode(bytes);
    } catch (InvalidUsage e) {
      return;
    }
    assertThat(name.encode()).isEqualTo(bytes);
  }
}
