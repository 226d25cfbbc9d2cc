// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.cudaipc;

import static io.fluxccl.transport.cudaipc.IpcRank.HOST;
import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.TransportFailure;
import io.fluxccl.device.cuda.CudaBuffer;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaMemoryKind;
import io.fluxccl.device.cuda.CudaStream;
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
import java.util.HexFormat;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import jcuda.driver.CUfunction;
import jcuda.driver.CUmodule;
import jcuda.driver.CUresult;
import jcuda.driver.JCudaDriver;
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
  /** Two ranks on two GPUs that don't reach each other; prints what each attempt ends with. */
  static final class Strangers {
    public static void main(String[] args) {
      IpcRank zero = new IpcRank(0, CudaDevice.open(0));
      IpcRank one = new IpcRank(1, CudaDevice.open(1));
      RegisteredMemory memory = one.register(one.allocate(64));
      print(() -> zero.receive(memory));
      print(() -> zero.connect(one));
      IpcRank alsoZero = new IpcRank(1, CudaDevice.open(0));
      zero.receive(alsoZero.register(alsoZero.allocate(64)));
      zero.connect(alsoZero).beginFlush();
      System.out.println("the same GPU works");
    }

    private static void print(Runnable attempt) {
      try {
        attempt.run();
        System.out.println("it succeeded");
      } catch (RuntimeException e) {
        FluxCclException failure = FluxCclException.from(e);
        System.out.println(failure.code() + " rank=" + failure.rank() + " " + failure.getMessage());
      }
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
      assertThat(child.readLine()).isEqualTo("the same GPU works");
    }
  }

  /** A rank whose GPU fails with a flush pending and another polled for. */
  static final class Broken {
    public static void main(String[] args) throws Exception {
      IpcRank zero = new IpcRank(0, CudaDevice.open(0));
      IpcRank one = new IpcRank(1, CudaDevice.open(1));
      CudaIpcConnection waits = zero.connect(one);
      CudaIpcConnection polls = zero.connect(one);
      StreamBlocker forEver = StreamBlocker.of(zero.device, polls.stream());
      long ticket = polls.beginFlush();
      CompletableFuture<Void> flush;
      try (StreamBlocker stall = StreamBlocker.of(zero.device, waits.stream())) {
        trap(waits.stream());
        flush = waits.flush(Duration.ofSeconds(20));
      }
      say(CudaIpcContract.failure(flush));
      say(waits.failure());
      while (polls.failure() == null && polls.flushedTicket() < ticket) {
        Thread.onSpinWait();
      }
      say(polls.failure());
      say(polls.failed().get(60, TimeUnit.SECONDS));
      say(CudaIpcContract.failure(polls.flush(Duration.ofSeconds(20))));
      forEver.close();
      System.setErr(
          new PrintStream(OutputStream.nullOutputStream())); // discards logged errors of frees
      zero.close();
      one.close();
      System.out.println("closed");
    }

    /** Launches a failing kernel. The GPU's context must be current on the calling thread. */
    private static void trap(CudaStream stream) {
      CUmodule module = new CUmodule();
      CUfunction function = new CUfunction();
      check(
          JCudaDriver.cuModuleLoadData(module, "fake_trap\0".getBytes(StandardCharsets.US_ASCII)));
      check(JCudaDriver.cuModuleGetFunction(function, module, "fake_trap"));
      check(JCudaDriver.cuLaunchKernel(function, 1, 1, 1, 1, 1, 1, 0, stream.handle(), null, null));
    }

    private static void check(int result) {
      if (result != CUresult.CUDA_SUCCESS) {
        throw new AssertionError(CUresult.stringFor(result));
      }
    }

    private static void say(FluxCclException failure) {
      System.out.println(
          failure.code()
              + " rank="
              + failure.rank()
              + " "
              + failure.getMessage()
              + " "
              + (failure.getCause() instanceof DeviceFailure));
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
  @EnumSource(mode = EnumSource.Mode.EXCLUDE, names = "POOL")
  void shouldRefuseMemoryOfAProcessThatDied(CudaMemoryKind memory) throws Exception {
    try (IpcRank rank = new IpcRank(0, CudaDevice.open(0));
        ProcessRank child =
            TestJvms.start(CudaIpcProcessContract.Receiver.class, "1", memory.name())) {
      RegisteredMemoryCodec.Decoded sent =
          RegisteredMemoryCodec.decode(HexFormat.of().parseHex(child.readLine()), 1);
      CudaIpcProcessContract.receive(rank, sent).close();
      child.kill();
      // Another thread closes the mapping; until then the driver returns it again.
      Awaitility.await()
          .untilAsserted(
              () ->
                  assertThatThrownBy(() -> CudaIpcProcessContract.receive(rank, sent).close())
                      .isInstanceOf(TransportFailure.class)
                      .hasMessageContaining("rank 1"));
    }
  }

  @Test
  void shouldReachAGpuThatThisProcessDoesNotSee() throws Exception {
    try (IpcRank rank = new IpcRank(0, CudaDevice.open(0));
        CudaBuffer local = rank.allocate(CudaIpcProcessContract.SIZE);
        ProcessRank child =
            TestJvms.of(1, CudaIpcProcessContract.Receiver.class, "0", "PLAIN")
                .variables(Map.of("CUDA_VISIBLE_DEVICES", "2", "FAKE_CUDA_DEVICES", "3"))
                .startRank(0)) {
      RegisteredMemoryCodec.Decoded sent =
          RegisteredMemoryCodec.decode(HexFormat.of().parseHex(child.readLine()), 1);
      RegisteredMemory there = CudaIpcProcessContract.receive(rank, sent);
      child.readLine();
      CudaIpcConnection connection = rank.connect(1, HexFormat.of().parseHex(child.readLine()));
      connection.write(there, 0, rank.register(local), 0, 64);
      CudaIpcContract.flush(connection);
    }
  }

  @Test
  void shouldRefuseMemoryOfAnotherProcessThatClaimsThisProcess() throws Exception {
    try (IpcRank rank = new IpcRank(0, CudaDevice.open(0));
        ProcessRank child = TestJvms.start(CudaIpcProcessContract.Receiver.class, "1", "PLAIN")) {
      RegisteredMemoryCodec.Decoded sent =
          RegisteredMemoryCodec.decode(HexFormat.of().parseHex(child.readLine()), 1);
      MemoryOrigin lie =
          new MemoryOrigin(1, HOST, rank.environment.processHash(), sent.origin().address(), 64);
      assertThatThrownBy(() -> rank.receive(sent.wires().get(Transport.CUDA_IPC), lie))
          .isInstanceOf(TransportFailure.class)
          .hasMessageContaining("rank 1");
    }
  }
}
