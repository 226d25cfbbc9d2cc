// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.docs;

import static org.assertj.core.api.Assertions.assertThat;
import static org.awaitility.Awaitility.await;

import io.fluxccl.DataType;
import io.fluxccl.ReduceOp;
import io.fluxccl.Text;
import io.fluxccl.collective.Collectives;
import io.fluxccl.device.Device;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.group.RankGroup;
import io.fluxccl.matmul.OverlapTable;
import io.fluxccl.matmul.OverlappedProducts;
import io.fluxccl.matmul.ProductShape;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.Ranks;
import io.fluxccl.trace.CallRecord;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.locks.LockSupport;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import reactor.core.publisher.Mono;

/**
 * The picture and the products of docs/22-overlapping-compute-and-communication.md: layers whose
 * gradients are reduced between the layers, and on a lane of their own beside the next layer. The
 * system property {@value #PROPERTY} names the file to draw to.
 */
@Timeout(60)
class OverlapPictureTest {
  private static final String PROPERTY = "fluxccl.picture";
  private static final int LAYERS = 5;
  private static final int STEPS = 30;
  private static final long LAYER_NANOS = 1_000_000;
  private static final int BYTES = 1 << 20;
  private static final Duration LONG = Duration.ofSeconds(30);
  private static final int WIDTH = 600;
  private static final int LEFT = 150;
  private static final int ROW = 26;

  /** Takes its time, and leaves the processors to the collectives, as a GPU's kernel does. */
  private static final HostKernel LAYER =
      HostKernel.of("layer", (thread, args) -> LockSupport.parkNanos(LAYER_NANOS));

  private static Mono<Void> backward(
      Collectives main, Collectives lane, List<DeviceBuffer> gradients) {
    List<Mono<Void>> all = new ArrayList<>();
    Mono<Void> before = Mono.empty();
    for (DeviceBuffer gradient : gradients) {
      Mono<Void> computed =
          before.then(main.pipeline().launch(LAYER, 1, 1, KernelArgs.of(gradient)).run()).cache();
      Mono<Void> reduced =
          computed.then(lane.allReduce(gradient, DataType.FLOAT32, ReduceOp.AVG)).cache();
      all.add(reduced);
      before = lane == main ? reduced : computed;
    }
    return Mono.when(all);
  }

  /** Returns the calls of the first rank's last step. */
  private static List<CallRecord> run(List<RankGroup> groups, List<Mono<Void>> steps) {
    for (int step = 0; step < STEPS; step++) {
      Mono.when(steps).block(LONG);
    }
    await().until(() -> last(groups.get(0)).stream().noneMatch(CallRecord::isInFlight));
    return last(groups.get(0));
  }

  private static List<CallRecord> last(RankGroup group) {
    List<CallRecord> calls = group.communicator().recorder().calls();
    return calls.subList(calls.size() - 2 * LAYERS, calls.size());
  }

  private static boolean computesBesideReducing(List<CallRecord> calls) {
    return calls.stream().anyMatch(one -> calls.stream().anyMatch(other -> overlap(one, other)));
  }

  private static boolean overlap(CallRecord one, CallRecord other) {
    return !one.kind().equals(other.kind())
        && one.begunNs() < other.endedNs()
        && other.begunNs() < one.endedNs();
  }

  @Test
  void shouldReduceGradientsWhileItComputes() throws IOException {
    List<RankGroup> groups = RankGroup.local(2);
    List<DeviceBuffer> buffers = new ArrayList<>();
    try {
      List<CompletableFuture<Collectives>> lanes =
          groups.stream().map(each -> each.collectives().lane("background")).toList();
      List<Mono<Void>> serial = new ArrayList<>();
      List<Mono<Void>> overlapped = new ArrayList<>();
      for (int rank = 0; rank < 2; rank++) {
        Device device = groups.get(rank).device();
        List<DeviceBuffer> gradients =
            Stream.generate(() -> device.allocate(BYTES)).limit(LAYERS).toList();
        buffers.addAll(gradients);
        Collectives main = groups.get(rank).collectives();
        Collectives background = lanes.get(rank).join();
        serial.add(Mono.defer(() -> backward(main, main, gradients)));
        overlapped.add(Mono.defer(() -> backward(main, background, gradients)));
      }
      List<CallRecord> without = run(groups, serial);
      List<CallRecord> with = run(groups, overlapped);
      for (List<CallRecord> calls : List.of(without, with)) {
        assertThat(calls).filteredOn(call -> call.kind().equals("all-reduce")).hasSize(LAYERS);
      }
      assertThat(computesBesideReducing(without)).isFalse();
      assertThat(computesBesideReducing(with)).isTrue();
      if (System.getProperty(PROPERTY) != null) {
        Files.writeString(Path.of(System.getProperty(PROPERTY)), picture(without, with));
      }
    } finally {
      RankGroup.closeAll(groups);
      buffers.forEach(DeviceBuffer::close);
    }
  }

  private static long begin(List<CallRecord> calls) {
    return calls.stream().mapToLong(CallRecord::begunNs).min().orElseThrow();
  }

  private static long span(List<CallRecord> calls) {
    return calls.stream().mapToLong(CallRecord::endedNs).max().orElseThrow() - begin(calls);
  }

  /** Draws two rows for each step, on one scale. */
  private static String picture(List<CallRecord> without, List<CallRecord> with) {
    double span = Math.max(span(without), span(with));
    int height = 4 * ROW;
    List<String> svg = new ArrayList<>();
    String root = "<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 %d %d'";
    svg.add(Text.of(root, LEFT + WIDTH + 20, height + ROW));
    svg.add(" font-family='sans-serif' font-size='11'>");
    svg.add("<rect width='100%' height='100%' fill='#fff'/>");
    for (int ms = 0; ms * 1e6 <= span; ms++) {
      double x = LEFT + ms * 1e6 / span * WIDTH;
      svg.add(Text.of("<path d='M%.1f 0V%d' stroke='#ddd'/>", x, height));
      svg.add(Text.of("<text x='%.1f' y='%d'>%d ms</text>", x, height + 17, ms));
    }
    for (int row = 0; row < 4; row++) {
      boolean computes = row % 2 == 0;
      List<CallRecord> calls = row < 2 ? without : with;
      String label =
          (row < 2 ? "one lane, " : "two lanes, ") + (computes ? "compute" : "all-reduce");
      svg.add(Text.of("<text x='4' y='%d'>%s</text>", row * ROW + 17, label));
      for (CallRecord call : calls) {
        if (call.kind().equals("all-reduce") != computes) {
          double x = LEFT + (call.begunNs() - begin(calls)) / span * WIDTH;
          double width = Math.max(1, (call.endedNs() - call.begunNs()) / span * WIDTH - 1);
          String box = "<rect x='%.1f' y='%d' width='%.1f' height='%d' rx='2' fill='%s'/>";
          String color = computes ? "#5b8def" : "#e8954a";
          svg.add(Text.of(box, x, row * ROW + 4, width, ROW - 8, color));
        }
      }
    }
    svg.add("</svg>\n");
    return String.join("\n", svg);
  }

  @Test
  @Ranks(2)
  void shouldMultiplyAndScatterInOneStep(LocalRank rank) {
    int rows = 4;
    Device device = rank.device();
    Collectives collectives = rank.collectives();
    DeviceBuffer activations = device.allocate(rows * 8 * 2L);
    DeviceBuffer weights = device.allocate(16 * 8 * 2L);
    DeviceBuffer mine = device.allocate(rows / 2 * 16 * 2L);
    ProductShape shape =
        new ProductShape(8, 16, DataType.BFLOAT16, 4); // inputs, outputs, type, most rows
    try (OverlappedProducts down = OverlappedProducts.of(collectives, shape).join()) {
      Mono<Void> layer = down.matmulReduceScatter(rows, activations, weights, mine).run();
      layer.block(LONG);
      assertThat(down.way(OverlapTable.Operation.MATMUL_REDUCE_SCATTER, rows))
          .isEqualTo(OverlapTable.Way.SERIAL);
      rank.awaitAll();
    }
    List.of(activations, weights, mine).forEach(DeviceBuffer::close);
  }
}
