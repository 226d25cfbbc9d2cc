// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.testing.OtherUser;
import io.fluxccl.testing.Rounds;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.attribute.FileTime;
import java.nio.file.attribute.PosixFilePermissions;
import java.time.Duration;
import java.time.Instant;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class KernelCacheTest {
  private static final byte[] CONTENT = {1, 2, 3, 0, 5};

  @TempDir Path folder;

  private List<Path> files() throws Exception {
    try (Stream<Path> files = Files.list(folder)) {
      return files.toList();
    }
  }

  @Test
  void shouldReturnStoredEntries() {
    KernelCache cache = new KernelCache(folder.resolve("a/b"));
    assertThat(cache.get("key")).isEmpty();
    cache.put("key", CONTENT);
    assertThat(cache.get("key")).contains(CONTENT);
    assertThat(new KernelCache(folder.resolve("a/b")).get("key")).contains(CONTENT);
    assertThat(cache.get("other")).isEmpty();
  }

  @Test
  void shouldRestrictItsFolderToTheUser() throws Exception {
    Path own = folder.resolve("own");
    new KernelCache(own).put("key", CONTENT);
    assertThat(PosixFilePermissions.toString(Files.getPosixFilePermissions(own)))
        .isEqualTo("rwx------");
  }

  @Test
  void shouldIgnoreAndReplaceADamagedEntry() throws Exception {
    KernelCache cache = new KernelCache(folder);
    cache.put("key", CONTENT);
    Path entry = files().get(0);
    byte[] intact = Files.readAllBytes(entry);
    for (int i = 0; i < intact.length; i++) {
      byte[] damaged = intact.clone();
      damaged[i] ^= 0x10;
      Files.write(entry, damaged);
      assertThat(cache.get("key")).as("byte " + i).isEmpty();
    }
    for (int length = 0; length < intact.length; length++) {
      Files.write(entry, Arrays.copyOf(intact, length));
      assertThat(cache.get("key")).as("length " + length).isEmpty();
    }
    cache.put("key", CONTENT);
    assertThat(cache.get("key")).contains(CONTENT);
  }

  @Test
  void shouldWorkWithoutACacheIfItsFolderCannotBeCreated() throws Exception {
    Path file = Files.writeString(folder.resolve("file"), "in the way");
    KernelCache cache = new KernelCache(file.resolve("cache"));
    cache.put("key", CONTENT);
    assertThat(cache.get("key")).isEmpty();
    KernelCache nowhere = new KernelCache(Path.of("/proc/nowhere"));
    nowhere.put("key", CONTENT);
    assertThat(nowhere.get("key")).isEmpty();
  }

  @Test
  void shouldShowReadersAllOrNothingWhileWritersReplaceAnEntry() throws Exception {
    byte[] large = new byte[300_000];
    Arrays.fill(large, (byte) 7);
    new KernelCache(folder).put("key", large);
    List<CompletableFuture<Void>> threads = new ArrayList<>();
    for (int i = 0; i < 4; i++) {
      boolean writes = i % 2 == 0;
      threads.add(
          CompletableFuture.runAsync(
              () -> {
                KernelCache cache = new KernelCache(folder);
                for (int j = 0; j < Rounds.of(20, 100); j++) {
                  if (writes) {
                    cache.put("key", large);
                  } else {
                    assertThat(cache.get("key")).contains(large);
                  }
                }
              }));
    }
    for (CompletableFuture<Void> thread : threads) {
      thread.get();
    }
    assertThat(files()).hasSize(1);
  }

  @Test
  void shouldRemoveEntriesUnusedForAMonth() throws Exception {
    KernelCache cache = new KernelCache(folder);
    cache.put("old", CONTENT);
    Path old = files().get(0);
    Files.setLastModifiedTime(old, FileTime.from(Instant.now().minus(Duration.ofDays(40))));
    assertThat(cache.get("old")).contains(CONTENT); // a read updates its time
    new KernelCache(folder).put("new", CONTENT);
    assertThat(files()).hasSize(2);
    Files.setLastModifiedTime(old, FileTime.from(Instant.now().minus(Duration.ofDays(40))));
    new KernelCache(folder).put("newer", CONTENT);
    assertThat(files()).hasSize(2).doesNotContain(old);
  }

  @Test
  void shouldUseTheDirectoryOfTheEnvironment() {
    Path given = folder.resolve("given");
    KernelCache.of(Map.of("FLUXCCL_CACHE_DIR", given.toString(), "XDG_CACHE_HOME", "/proc/nowhere"))
        .put("key", CONTENT);
    assertThat(given).isDirectory();
    KernelCache.of(Map.of("XDG_CACHE_HOME", folder.toString())).put("key", CONTENT);
    assertThat(folder.resolve("fluxccl")).isDirectory();
  }

  @Test
  void shouldNotUseAFolderInWhichOthersMayWrite() throws Exception {
    KernelCache cache = new KernelCache(folder);
    cache.put("key", CONTENT);
    Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxrwx---"));
    assertThat(cache.get("key")).isEmpty();
    cache.put("other", CONTENT);
    assertThat(files()).hasSize(1);
    Files.setPosixFilePermissions(folder, PosixFilePermissions.fromString("rwxr-xr-x"));
    assertThat(cache.get("key")).contains(CONTENT);
  }

  @Test
  void shouldNotUseEntriesOrLinksOfAnotherUser() throws Exception {
    Path real = Files.createDirectory(folder.resolve("real"));
    Path link = Files.createSymbolicLink(folder.resolve("link"), real);
    KernelCache cache = new KernelCache(link);
    cache.put("key", CONTENT);
    assertThat(cache.get("key")).contains(CONTENT);
    Path entry = OtherUser.give(real.resolve("key.kernel"));
    assertThat(cache.get("key")).isEmpty();
    Files.setAttribute(entry, "unix:uid", 0);
    assertThat(cache.get("key")).contains(CONTENT);
    OtherUser.give(link);
    assertThat(cache.get("key")).isEmpty();
  }

  @Test
  void shouldDistinguishKeysOfDifferentParts() {
    assertThat(KernelCache.key(List.of("ab", "c")))
        .isNotEqualTo(KernelCache.key(List.of("a", "bc")));
    assertThat(KernelCache.key(List.of("a"))).isNotEqualTo(KernelCache.key(List.of("a", "")));
    assertThat(KernelCache.key(List.of("a"))).isEqualTo(KernelCache.key(List.of("a")));
  }
}
