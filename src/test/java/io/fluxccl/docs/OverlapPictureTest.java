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
 * The picture of docs/8-collectives-and-pipelines.md: layers whose gradients are reduced on one
 * lane while the next layer is computed on another. The system property {@value #PROPERTY} names
 * the file to draw to.
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
  private static final int LEFT = 120;
  private static final int ROW = 26;

  /** Takes its time, and leaves the processors to the collectives, as a GPU's kernel does. */
  private static final HostKernel LAYER =
      HostKernel.of("layer", (thread, args) -> LockSupport.parkNanos(LAYER_NANOS));

  private static Mono<Void> backward(
      Collectives main, Collectives background, List<DeviceBuffer> gradients) {
    List<Mono<Void>> all = new ArrayList<>();
    Mono<Void> before = Mono.empty();
    for (DeviceBuffer gradient : gradients) {
      Mono<Void> computed =
          before.then(main.pipeline().launch(LAYER, 1, 1, KernelArgs.of(gradient)).run()).cache();
      all.add(computed.then(background.allReduce(gradient, DataType.FLOAT32, ReduceOp.AVG)));
      before = computed;
    }
    return Mono.when(all);
  }

  /** Returns the calls of a rank's last step. */
  private static List<CallRecord> last(RankGroup group) {
    List<CallRecord> calls = group.communicator().recorder().calls();
    return calls.subList(calls.size() - 2 * LAYERS, calls.size());
  }

  private static boolean overlap(CallRecord one, CallRecord other) {
    return one.lane() != other.lane()
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
      List<Mono<Void>> steps = new ArrayList<>();
      for (int rank = 0; rank < 2; rank++) {
        Device device = groups.get(rank).device();
        List<DeviceBuffer> gradients =
            Stream.generate(() -> device.allocate(BYTES)).limit(LAYERS).toList();
        buffers.addAll(gradients);
        Collectives main = groups.get(rank).collectives();
        Collectives background = lanes.get(rank).join();
        steps.add(Mono.defer(() -> backward(main, background, gradients)));
      }
      for (int step = 0; step < STEPS; step++) {
        Mono.when(steps).block(LONG);
      }
      await()
          .until(
              () ->
                  groups.stream()
                      .allMatch(each -> last(each).stream().noneMatch(CallRecord::isInFlight)));
      List<List<CallRecord>> ranks = groups.stream().map(OverlapPictureTest::last).toList();
      for (List<CallRecord> calls : ranks) {
        assertThat(calls).filteredOn(call -> call.kind().equals("all-reduce")).hasSize(LAYERS);
        assertThat(calls).anyMatch(one -> calls.stream().anyMatch(other -> overlap(one, other)));
      }
      if (System.getProperty(PROPERTY) != null) {
        Files.writeString(Path.of(System.getProperty(PROPERTY)), picture(ranks));
      }
    } finally {
      RankGroup.closeAll(groups);
      buffers.forEach(DeviceBuffer::close);
    }
  }

  /** Draws a row for each lane of each rank. Both ranks run in this process and share one clock. */
  private static String picture(List<List<CallRecord>> ranks) {
    List<CallRecord> all = ranks.stream().flatMap(List::stream).toList();
    long begin = all.stream().mapToLong(CallRecord::begunNs).min().orElseThrow();
    double span = all.stream().mapToLong(CallRecord::endedNs).max().orElseThrow() - begin;
    int height = 2 * ranks.size() * ROW;
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
    for (int row = 0; row < 2 * ranks.size(); row++) {
      boolean computes = row % 2 == 0;
      String lane = computes ? "compute" : "all-reduce";
      svg.add(Text.of("<text x='4' y='%d'>rank %d, %s</text>", row * ROW + 17, row / 2, lane));
      for (CallRecord call : ranks.get(row / 2)) {
        if (call.kind().equals("all-reduce") != computes) {
          double x = LEFT + (call.begunNs() - begin) / span * WIDTH;
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
}
