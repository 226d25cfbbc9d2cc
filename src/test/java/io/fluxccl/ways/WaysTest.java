// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.ways;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.channel.ProxyChannelDeviceHandle;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.collective.Collectives;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.fluxccl.testing.EmulatedGpus;
import io.fluxccl.testing.Ports;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.testkit.TestConnection;
import io.fluxccl.transport.Transport;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** Compares the pages that name every class of an operation with the classes that run. */
@Tag("ways")
class WaysTest {
  private static final Duration LONG = Duration.ofSeconds(120);
  private static final Path PAGES = Path.of("docs/reference");
  private static final int WARM_UP = 200;
  private static final int RECORDED = 500;

  /** A row of a page's table: number, classes, sentence. */
  private static final Pattern ROW = Pattern.compile("\\| \\d+ \\| ([^|]+) \\|.*");

  private static final Pattern NAME = Pattern.compile("`(\\w+)`");

  /** Not the thread of time limits. */
  private static final Predicate<String> OF_A_JOIN = name -> !name.startsWith("fluxccl-timers");

  /**
   * Nor threads of periodic work, for which no operation waits. From JDK 25 on the common pool's
   * thread has the delays of CompletableFuture.
   */
  private static final Predicate<String> OF_A_CALL =
      OF_A_JOIN.and(
          name ->
              !name.matches(
                  "(fluxccl-(blocking|bootstrap)|CompletableFuture|ForkJoinPool|parallel).*"));

  @BeforeAll
  static void instrument() {
    Ways.install();
  }

  /** Returns the classes in the tables of the sections whose titles match. */
  private static Set<String> inTables(String page, String... sections) throws IOException {
    Set<String> classes = new TreeSet<>();
    boolean isIn = sections.length == 0;
    for (String line : Files.readAllLines(PAGES.resolve(page))) {
      if (line.startsWith("## ")) {
        isIn = List.of(sections).contains(line.substring(3));
      }
      Matcher row = ROW.matcher(line);
      if (isIn && row.matches()) {
        NAME.matcher(row.group(1)).results().forEach(name -> classes.add(name.group(1)));
      }
    }
    return classes;
  }

  private static void assertTold(String page, int classes, String unit) throws IOException {
    String text = Files.readString(PAGES.resolve(page)).split("\n\n")[1].replace('\n', ' ');
    assertThat(text).as(page + ", first paragraph").contains(classes + " classes" + unit);
  }

  private static Set<String> ofAnAllReduce(LocalRanks ranks) {
    ranks.run(
        LONG,
        rank -> {
          try (DeviceBuffer buffer = rank.device().allocate(1024)) {
            Collectives collectives = Collectives.create(rank.communicator()).join();
            collectives.register(buffer).join();
            for (int call = 0; call < WARM_UP + RECORDED; call++) {
              rank.awaitAll();
              if (call >= WARM_UP) {
                Ways.start();
              }
              collectives
                  .allReduce(buffer, buffer, 256, DataType.FLOAT32, ReduceOp.SUM)
                  .block(LONG);
              Ways.stop();
            }
            rank.awaitAll();
          }
        });
    return Ways.take(OF_A_CALL);
  }

  @Test
  void shouldNameTheClassesOfAnAllReduceOnTheHost() throws IOException {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      Set<String> ran = ofAnAllReduce(ranks);
      String page = "life-of-an-all-reduce.md";
      assertThat(inTables(page, "On both devices", "On the host device")).isEqualTo(ran);
      assertTold(page, ran.size(), " on the host device");
    }
  }

  @Test
  @EmulatedGpus
  void shouldNameTheClassesOfAnAllReduceOnGpus() throws IOException {
    try (LocalRanks ranks = LocalRanks.onGpus(2)) {
      Set<String> ran = ofAnAllReduce(ranks);
      String page = "life-of-an-all-reduce.md";
      assertThat(inTables(page, "On both devices", "On a GPU")).isEqualTo(ran);
      assertTold(page, ran.size(), " on a GPU");
    }
  }

  private static void putAndAwait(LocalRank rank, ProxyChannelDeviceHandle channel) {
    for (int round = 0; round < WARM_UP + RECORDED; round++) {
      boolean isRecorded = round >= WARM_UP;
      if (rank.rank() == 0) {
        if (isRecorded) {
          Ways.start();
        }
        assertThat(channel.putWithSignalAndFlush(0, 0, 1024)).isTrue();
        assertThat(channel.await()).isTrue();
        Ways.stop();
        channel.signal();
      } else {
        assertThat(channel.await()).isTrue();
        channel.signal();
        assertThat(channel.await()).isTrue();
      }
    }
  }

  @Test
  void shouldNameTheClassesOfAProxyPut() throws IOException {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          LONG,
          rank -> {
            TestConnection link = TestConnection.to(rank, 1 - rank.rank(), 0, Transport.SHM, 1024);
            try (ProxyService service = new ProxyService(rank.communicator())) {
              int semaphore = service.buildAndAddSemaphore(rank.communicator(), link.connection);
              rank.communicator().setup().join();
              ProxyChannelDeviceHandle channel =
                  service
                      .proxyChannel(
                          semaphore, service.addMemory(link.remote), service.addMemory(link.local))
                      .deviceHandle();
              service.startProxy();
              HostKernel kernel =
                  HostKernel.of("put", (thread, args) -> putAndAwait(rank, channel));
              rank.stream().launch(kernel, 1, 1, KernelArgs.NONE).completion().join();
              rank.awaitAll();
            }
          });
    }
    Set<String> ran = Ways.take(OF_A_CALL);
    String page = "life-of-a-proxy-put.md";
    assertThat(inTables(page)).isEqualTo(ran);
    assertTold(page, ran.size(), "");
  }

  @Test
  void shouldNameTheClassesOfAJoin() throws Exception {
    String address = "127.0.0.1:" + Ports.reserved();
    Ways.startUntil(Communicator.class);
    List<CompletableFuture<RankGroup>> joins = List.of(join(address, 0), join(address, 1));
    List<RankGroup> groups = joins.stream().map(CompletableFuture::join).toList();
    Ways.stop();
    RankGroup.closeAll(groups);
    Set<String> ran = Ways.take(OF_A_JOIN);
    String page = "life-of-joining-a-group.md";
    assertThat(inTables(page, "The join")).isEqualTo(ran);
    assertTold(page, ran.size(), "");
  }

  private static CompletableFuture<RankGroup> join(String address, int rank) {
    return RankGroup.join(
        JoinOptions.of(rank, 2)
            .withAddress(address)
            .withSecret(JobSecret.of("0123456789abcdef0123456789abcdef"))
            .withDevice(DeviceChoice.HOST));
  }
}
