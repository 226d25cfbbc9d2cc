// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static io.fluxccl.testing.FailureAssertions.assertThrows;
import static jcuda.driver.CUresult.CUDA_SUCCESS;
import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.DeviceFailure;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.DeviceGraph;
import io.fluxccl.device.GraphContract;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.PinnedBuffer;
import io.fluxccl.testing.AllocatedBytes;
import jcuda.driver.JCudaDriver;
import org.junit.jupiter.api.Test;

/** Graphs on GPUs, beyond the contract of all devices. */
abstract class CudaGraphContract extends GraphContract {
  CudaGraphContract() {
    super(new CudaTestDevice());
  }

  @Test
  void shouldRecordRawCallsAndSharedMemory() throws Exception {
    try (DeviceBuffer a = device.allocate(1 << 20);
        DeviceBuffer b = device.allocate(1 << 20)) {
      DeviceGraph graph =
          graphOf(
              stream -> {
                CudaStream copies = (CudaStream) stream.branch("copies");
                CudaStream main = (CudaStream) stream;
                for (int sharedBytes : new int[] {0, 1000, 100_000}) {
                  main.launch(
                      StreamKernels.FILL, 8, 128, sharedBytes, KernelArgs.of(a, a.size(), 5));
                }
                copies.waitFor(main);
                copies.copyAsync(b.address(), a.address(), a.size());
                copies.writeValue64(words.deviceAddress(), 3);
                copies.requireHealthy();
                assertThat(
                        JCudaDriver.cuStreamWriteValue64(
                            copies.handle(), new CudaPointer(words.deviceAddress() + 8), 4, 0))
                    .isEqualTo(CUDA_SUCCESS);
              });
      for (int i = 0; i < 3; i++) {
        words.buffer().setMemory(0, 16, (byte) 0);
        await(first.launch(graph).completion());
        assertThat(bytesOf(b)).containsOnly(5);
        assertThat(word(0)).isEqualTo(3);
        assertThat(word(1)).isEqualTo(4);
      }
    }
  }

  @Test
  void shouldTakeArgumentsAsTheyWereWhenRecorded() throws Exception {
    byte[] value = new byte[8];
    value[0] = 1;
    DeviceGraph graph =
        graphOf(
            stream -> {
              for (int i = 0; i < 8; i++) {
                value[0] = (byte) (i + 1);
                stream.launch(
                    StreamKernels.STORE, 1, 1, KernelArgs.of(words.deviceAddress() + 8 * i, value));
              }
            });
    value[0] = 99;
    await(first.launch(graph).completion());
    for (int i = 0; i < 8; i++) {
      assertThat(word(i)).isEqualTo(i + 1);
    }
  }

  @Test
  void shouldFailTheRecordingIfTheDriverCannotCaptureAndStayUsable() throws Exception {
    assertThrows(
        DeviceFailure.class,
        () ->
            graphOf(
                stream -> {
                  stream.writeValue(words, 0, 1);
                  stream.branch("b").writeValue(words, 8, 1);
                  JCudaDriver.cuStreamSynchronize(((CudaStream) stream).handle());
                }));
    await(first.completion());
    DeviceGraph graph = device.record("good", stream -> stream.writeValue(words, 0, 2));
    await(first.launch(graph).completion());
    assertThat(word(0)).isEqualTo(2);
    assertThat(word(1)).isZero();
  }

  @Test
  void shouldRunConcurrentlyWithOtherWorkOfTheGpu() throws Exception {
    PinnedBuffer gate = hold(second);
    DeviceGraph graph = device.record("free", stream -> stream.writeValue(words, 0, 1));
    await(first.launch(graph).completion()); // neither recording nor launching waits for a kernel
    open(gate);
    await(second.completion());
  }

  @Test
  void shouldAllocateNothingToLaunch() throws Exception {
    DeviceGraph graph = device.record("g", stream -> stream.writeValue(words, 0, 1));
    long allocated =
        AllocatedBytes.least(
            1000,
            () -> {
              for (int i = 0; i < 1000; i++) {
                first.launch(graph);
              }
            });
    assertThat(allocated).as("bytes of 1000 launches").isLessThan(1000);
    await(first.completion());
  }
}
