// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static io.fluxccl.transport.ConnectedRanks.LIMIT;
import static io.fluxccl.transport.ConnectedRanks.failureOf;
import static io.fluxccl.transport.ConnectedRanks.get;
import static io.fluxccl.transport.ConnectedRanks.opened;
import static io.fluxccl.transport.cudaipc.IpcRank.HOST;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.catchThrowable;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaKernel;
import io.fluxccl.device.cuda.CudaModule;
import io.fluxccl.device.cuda.StreamBlocker;
import io.fluxccl.testing.FakeCuda;
import io.fluxccl.testing.TestJvms;
import io.fluxccl.testkit.ProcessRank;
import io.fluxccl.transport.MemoryOrigin;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.RegisteredMemoryCodec;
import io.fluxccl.transport.Transport;
import java.io.OutputStream;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.assertj.core.api.ThrowableAssert.ThrowingCallable;
import org.awaitility.Awaitility;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

/**
 * Failures that are tested on the fake GPU only: a GPU fault, no peer access, memory of a dead
 * process.
 */
@FakeCuda
@Tag("multiprocess")
@Timeout(120)
class CudaIpcFailureTest {
  private static String text(FluxCclException failure) {
    return failure.code() + " rank=" + failure.rank() + " " + failure.getMessage();
  }

  /** Two ranks on two GPUs that don't reach each other; prints what each attempt ends with. */
  static final class Strangers {
    public static void main(String[] args) {
      IpcRank zero = new IpcRank(0, CudaDevice.open(0));
      IpcRanks apart = new IpcRanks(zero, new IpcRank(1, CudaDevice.open(1)));
      RegisteredMemory memory = apart.memory(1, 64);
      print(() -> apart.seenByPeer(memory));
      print(() -> apart.connect(0));
      IpcRanks same = new IpcRanks(zero, new IpcRank(1, CudaDevice.open(0)));
      print(() -> same.transfer(0, 64).link().beginFlush());
    }

    private static void print(ThrowingCallable attempt) {
      Throwable failure = catchThrowable(attempt);
      System.out.println(failure == null ? "done" : text(FluxCclException.from(failure)));
    }
  }

  @Test
  void shouldNameBothGpusWhereTheyHaveNoPeerAccess() throws Exception {
    try (ProcessRank child =
        TestJvms.of(1, Strangers.class).variables(Map.of("FAKE_CUDA_NO_PEER", "1")).startRank(0)) {
      for (int i = 0; i < 2; i++) {
        assertThat(child.readLine())
            .startsWith("TRANSPORT_FAILURE rank=1 ")
            .contains("0000:a0:00.0", "0000:a1:00.0", "ETHERNET");
      }
      assertThat(child.readLine()).as("on one GPU").isEqualTo("done");
    }
  }

  /** A rank whose GPU fails with a flush pending and another polled for. */
  static final class Broken {
    public static void main(String[] args) throws Exception {
      CudaDevice gpu = CudaDevice.open(0);
      IpcRanks ranks = new IpcRanks(new IpcRank(0, gpu), new IpcRank(1, CudaDevice.open(1)));
      byte[] names = "fake_trap".getBytes(StandardCharsets.US_ASCII);
      CudaKernel trap = CudaModule.fromPtx(names).kernel("fake_trap").prepare(gpu);
      CudaIpcConnection waits = (CudaIpcConnection) ranks.connect(5).get(0);
      CudaIpcConnection polls = (CudaIpcConnection) ranks.connect(5).get(0);
      StreamBlocker forEver = StreamBlocker.of(gpu, polls.stream());
      long ticket = polls.beginFlush();
      CompletableFuture<Void> flush;
      try (StreamBlocker stall = StreamBlocker.of(gpu, waits.stream())) {
        waits.stream().launch(trap, 1, 1, KernelArgs.NONE);
        flush = waits.flush(Duration.ofSeconds(20));
      }
      say(failureOf(flush));
      say(waits.failure());
      while (polls.failure() == null && polls.flushedTicket() < ticket) {
        Thread.onSpinWait();
      }
      say(polls.failure());
      say(polls.failed().get(60, TimeUnit.SECONDS));
      say(failureOf(polls.flush(Duration.ofSeconds(20))));
      forEver.close();
      System.setErr(
          new PrintStream(OutputStream.nullOutputStream())); // discards logged errors of frees
      ranks.close();
      System.out.println("closed");
    }

    private static void say(FluxCclException failure) {
      boolean ofDevice = failure.getCause() instanceof DeviceFailure;
      System.out.println(text(failure) + " " + ofDevice);
    }
  }

  @Test
  void shouldFailWaitingAndPollingFlushesIfTheGpuFails() throws Exception {
    try (ProcessRank child = TestJvms.start(Broken.class)) {
      for (int i = 0; i < 5; i++) {
        assertThat(child.readLine())
            .startsWith(
                "TRANSPORT_FAILURE rank=1 the CUDA_IPC connection of rank 0 to rank 1 (tag 5): ")
            .contains("CUDA_ERROR_ILLEGAL_ADDRESS")
            .endsWith(" true");
      }
      assertThat(child.readLine()).isEqualTo("closed");
    }
  }

  @ParameterizedTest
  @EnumSource(names = {"TWO_GPUS", "TWO_GPUS_WITH_VMM"})
  void shouldRefuseMemoryOfAProcessThatDied(IpcPlacement placement) throws Exception {
    try (IpcRank rank = new IpcRank(0, placement.open(0));
        ProcessRank child = TestJvms.start(IpcReceiver.class, placement.name())) {
      RegisteredMemoryCodec.Decoded sent = IpcReceiver.sent(child);
      IpcReceiver.receive(rank, sent).close();
      child.kill();
      // Another thread closes the mapping; until then the driver returns it again.
      Awaitility.await()
          .untilAsserted(
              () ->
                  assertThrows(
                      TransportFailure.class,
                      () -> IpcReceiver.receive(rank, sent).close(),
                      "rank 1"));
    }
  }

  @Test
  void shouldReachAGpuThatThisProcessDoesNotSee() throws Exception {
    try (IpcRank rank = new IpcRank(0, CudaDevice.open(0));
        CudaBuffer local = rank.device.allocate(64);
        ProcessRank child =
            TestJvms.of(1, IpcReceiver.class, IpcPlacement.ONE_GPU.name())
                .variables(Map.of("CUDA_VISIBLE_DEVICES", "2", "FAKE_CUDA_DEVICES", "3"))
                .startRank(0)) {
      RegisteredMemory there = IpcReceiver.receive(rank, child);
      child.readLine();
      CudaIpcConnection connection = IpcReceiver.connect(rank, child);
      connection.write(there, 0, rank.register(local), 0, 64);
      get(connection.flush(LIMIT));
    }
  }

  @Test
  void shouldRefuseMemoryOfAnotherProcessThatClaimsThisProcess() throws Exception {
    try (IpcRank rank = new IpcRank(0, CudaDevice.open(0));
        ProcessRank child = TestJvms.start(IpcReceiver.class, IpcPlacement.TWO_GPUS.name())) {
      RegisteredMemoryCodec.Decoded sent = IpcReceiver.sent(child);
      MemoryOrigin lie =
          new MemoryOrigin(1, HOST, rank.environment.processHash(), sent.origin().address(), 64);
      byte[] wire = sent.wires().get(Transport.CUDA_IPC);
      assertThrows(TransportFailure.class, () -> opened(rank.context, wire, lie), "rank 1");
    }
  }

  @Test
  void shouldRefuseAnInvalidBusId() {
    CudaIpcContext.checkBusId(1, "0000:3b:00.0");
    for (String wrong : new String[] {"", "../../etc/x", "0000:3b:00.8", "0000:3b:00.0 "}) {
      assertThrows(
          TransportFailure.class, () -> CudaIpcContext.checkBusId(1, wrong), "rank 1", "bus id");
    }
  }
}
