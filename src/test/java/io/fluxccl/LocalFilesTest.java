// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.testing.OtherUser;
import java.io.IOException;
import java.io.RandomAccessFile;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.SecureDirectoryStream;
import java.nio.file.attribute.PosixFilePermissions;
import java.nio.file.attribute.UserPrincipal;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.api.io.TempDir;

/** Handling of files that other users of the machine may have placed in a shared folder. */
@Timeout(60)
class LocalFilesTest {
  private static final int MOST = 1 << 20;
  private static final byte[] CONTENT = {1, 2, 3};

  @TempDir private Path folder;

  private static UserPrincipal self() throws IOException {
    return LocalFiles.userOf("self");
  }

  private static SecureDirectoryStream<Path> open(Path folder) throws IOException {
    return LocalFiles.open(folder, self(), LocalFiles.OTHERS_ALL);
  }

  private byte[] read(String name) throws IOException {
    try (SecureDirectoryStream<Path> opened = open(folder)) {
      return LocalFiles.read(opened, Path.of(name), self(), MOST);
    }
  }

  private Path huge() throws IOException {
    Path huge = folder.resolve("huge");
    try (RandomAccessFile sparse = new RandomAccessFile(huge.toFile(), "rw")) {
      sparse.setLength(1L << 40);
    }
    return huge;
  }

  @Test
  void shouldReplaceAndReadAFile() throws IOException {
    LocalFiles.replace(folder.resolve("file"), new byte[] {9});
    LocalFiles.replace(folder.resolve("file"), CONTENT);
    assertThat(read("file")).isEqualTo(CONTENT);
    try (Stream<Path> files = Files.list(folder)) {
      assertThat(files).containsExactly(folder.resolve("file"));
    }
  }

  @Test
  void shouldReplaceALinkAndNotItsTarget() throws IOException {
    Path victim = Files.writeString(folder.resolve("victim"), "untouched");
    Path link = Files.createSymbolicLink(folder.resolve("link"), victim);
    LocalFiles.replace(link, CONTENT);
    assertThat(victim).hasContent("untouched");
    assertThat(Files.readAllBytes(link)).isEqualTo(CONTENT);
  }

  @Test
  void shouldRefuseLinksFifosAndFilesThatAreTooLarge() throws Exception {
    OtherUser.makeFifo(folder.resolve("fifo"));
    Files.createSymbolicLink(folder.resolve("link"), huge());
    Files.createDirectory(folder.resolve("folder"));
    for (String name : List.of("fifo", "link", "folder")) {
      assertThatThrownBy(() -> read(name)).hasMessageContaining("is no regular file");
    }
    Files.write(folder.resolve("over"), new byte[MOST + 1]);
    for (String name : List.of("huge", "over")) {
      assertThatThrownBy(() -> read(name)).hasMessageContaining("bytes, over " + MOST);
    }
  }

  @Test
  void shouldRefuseAFifoInPlaceOfAFolderWithoutAWait() throws Exception {
    Path fifo = OtherUser.makeFifo(folder.resolve("fifo"));
    assertThatThrownBy(() -> open(fifo).close()).isInstanceOf(IOException.class);
  }

  @Test
  void shouldRefuseAFolderThatOthersCanRead() throws IOException {
    Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxr-x---"));
    assertThatThrownBy(() -> open(folder).close())
        .hasMessageContaining("others have the permissions")
        .hasMessageContaining("GROUP_READ");
    LocalFiles.open(folder, self(), LocalFiles.OTHERS_WRITE).close();
  }

  @Test
  void shouldRefuseAFolderOfAnotherUser() throws IOException {
    OtherUser.give(folder);
    assertThatThrownBy(() -> open(folder).close())
        .hasMessageContaining("belongs to user " + OtherUser.ID);
  }

  @Test
  void shouldRefuseAFileOfAnotherUser() throws IOException {
    OtherUser.give(Files.write(folder.resolve("file"), CONTENT));
    assertThatThrownBy(() -> read("file")).hasMessageContaining("is no regular file of user");
  }

  @Test
  void shouldRefuseALinkOfAnotherUserAnywhereInAPath() throws IOException {
    Path target = Files.createDirectories(folder.resolve("target/inner"));
    Path link = Files.createSymbolicLink(folder.resolve("link"), target.getParent());
    Path own = Files.createSymbolicLink(folder.resolve("own"), Path.of("link/inner"));
    assertThat(LocalFiles.requireOwnLinks(own)).isEqualTo(own);
    OtherUser.give(link);
    for (Path path : new Path[] {link, link.resolve("inner"), own, own.resolve("absent")}) {
      assertThatThrownBy(() -> LocalFiles.requireOwnLinks(path))
          .isInstanceOf(IOException.class)
          .hasMessageContaining(link + " is a link of user " + OtherUser.ID);
    }
  }

  @Test
  void shouldEndAtALinkToItself() throws IOException {
    Path link = folder.resolve("link");
    Files.createSymbolicLink(link, link);
    assertThatThrownBy(() -> LocalFiles.requireOwnLinks(link))
        .hasMessageContaining("too many links");
  }
}
