// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.export;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.when;

import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.vendor.NetResult;
import io.fluxccl.testing.AllocatedBytes;
import io.fluxccl.testing.HangLimit;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.function.Supplier;
import org.agrona.BufferUtil;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Tag;
import org.junit.jupiter.api.Test;

/** The calls of C, from Java: numbers in, numbers out. */
@org.junit.jupiter.api.Timeout(120)
@Tag("jdk")
class NetPluginExportTest {
  private static final int HOST = 1;
  private static final int MISUSE = -NetResult.INTERNAL_ERROR.code();

  private final ByteBuffer memory = ByteBuffer.allocateDirect(4096).order(ByteOrder.nativeOrder());
  private final long base = BufferUtil.address(memory);
  private final long handle = base + 1024;
  private final long arrays = base + 2048;
  private long send;
  private long receive;
  private long sendMemory;
  private long receiveMemory;

  @BeforeEach
  void connect() {
    assertThat(NetPluginExport.open()).isPositive();
    long listener = NetPluginExport.listen(0, handle);
    assertThat(listener).isPositive();
    long began = HangLimit.start();
    while (send == 0 || receive == 0) {
      send = send == 0 ? NetPluginExport.connect(0, handle) : send;
      receive = receive == 0 ? NetPluginExport.accept(listener) : receive;
      assertThat(send).isNotNegative();
      assertThat(receive).isNotNegative();
      HangLimit.check(began, "connected");
    }
    assertThat(NetPluginExport.closeListen(listener)).isZero();
    sendMemory = NetPluginExport.register(send, base, 512, HOST);
    receiveMemory = NetPluginExport.register(receive, base + 512, 512, HOST);
    memory.putLong(2048, base + 512).putLong(2056, 512).putInt(2064, 0);
    memory.putLong(2072, receiveMemory);
  }

  @AfterEach
  void release() {
    NetPluginExport.close(send);
    NetPluginExport.close(receive);
    assertThat(NetPluginExport.release()).isZero();
  }

  private long irecv() {
    return NetPluginExport.irecv(receive, 1, arrays, arrays + 8, true, arrays + 16, arrays + 24);
  }

  private static void await(long request, long sizes) {
    long began = HangLimit.start();
    int result;
    do {
      HangLimit.check(began, "the request is done");
      result = NetPluginExport.test(request, sizes);
      Thread.yield();
    } while (result == 0);
    if (result != 1) {
      throw new AssertionError("test gave " + result);
    }
  }

  private void move(int size) {
    long receiving = irecv();
    long sending = NetPluginExport.isend(send, base, size, 0, sendMemory);
    await(sending, 0);
    await(receiving, arrays + 32);
  }

  @Test
  void shouldMoveMessagesByNumbers() {
    memory.put(3, (byte) 42);
    move(10);
    assertThat(memory.get(512 + 3)).isEqualTo((byte) 42);
    assertThat(memory.getInt(2048 + 32)).isEqualTo(10);
    move(0);
    assertThat(memory.getInt(2048 + 32)).isZero();
    assertThat(NetPluginExport.iflush(receive, 1, arrays, arrays + 8, arrays + 24)).isZero();
    assertThat(NetPluginExport.deregister(send, sendMemory)).isZero();
    assertThat(NetPluginExport.deregister(send, sendMemory)).isEqualTo(MISUSE);
  }

  @Test
  void shouldAllocateNothingWhileMessagesMove() {
    long least =
        AllocatedBytes.least(
            200,
            () -> {
              for (int i = 0; i < 200; i++) {
                move(100);
              }
            });
    assertThat(least).isLessThan(200);
  }

  @Test
  void shouldDescribeDevices() {
    assertThat(NetPluginExport.properties(0, base)).isZero();
    byte[] name = new byte[128];
    memory.get(48, name);
    assertThat(new String(name, StandardCharsets.UTF_8).trim()).isNotEmpty();
    assertThat(memory.getInt(16)).isEqualTo(HOST);
    assertThat(memory.getInt(28)).isPositive();
    assertThat(memory.getInt(44)).isEqualTo(8);
    assertThat(NetPluginExport.properties(99, base)).isEqualTo(MISUSE);
  }

  @Test
  void shouldAnswerWithCodesAndThrowNothing() {
    assertThat(NetPluginExport.listen(99, handle)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.accept(send)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.register(send, base, 8, 2)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.register(send, base, 8, 3)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.registerDmaBuf(send, base, 8, HOST, 0, 0)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.isend(0, base, 8, 0, sendMemory)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.isend(send, base, 8, 0, 77)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.test(send, 0)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.test(send | 5, 0)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.close(12345)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.closeListen(0)).isEqualTo(MISUSE);
  }

  @Test
  void shouldDistinguishErrorsOfNcclFromErrorsOfTheUser() {
    // The user's: sizes that do not match.
    long receiving = irecv();
    long sending = NetPluginExport.isend(send, base, 512, 0, sendMemory);
    await(sending, 0);
    await(receiving, 0);
    memory.putLong(2056, 16);
    long small = irecv();
    assertThat(NetPluginExport.isend(send, base, 512, 0, sendMemory)).isPositive();
    int result = 0;
    long began = HangLimit.start();
    while (result == 0) {
      result = NetPluginExport.test(small, 0);
      HangLimit.check(began, "the request fails");
    }
    assertThat(result).isEqualTo(-NetResult.INVALID_USAGE.code());
    // NCCL's: a request that has completed.
    assertThat(NetPluginExport.test(receiving, 0)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.test(small, 0)).isEqualTo(MISUSE);
  }

  @Test
  void shouldRefuseToBeTheNetworkThatItOpens() {
    NetPlugin opensLate = mock(NetPlugin.class);
    when(opensLate.devices())
        .thenAnswer(call -> NetPluginExport.openOnce(() -> opensLate).devices());
    for (Supplier<NetPlugin> opener :
        List.<Supplier<NetPlugin>>of(
            () -> NetPluginExport.openOnce(() -> opensLate), () -> opensLate)) {
      assertRefused(() -> NetPluginExport.openOnce(opener), "FluxCCL itself");
    }
  }

  @Test
  void shouldStartANewConnectIfTheHandleBytesChange() {
    for (int i = 0; i < 2; i++) {
      long listener = NetPluginExport.listen(0, handle);
      // This attempt is abandoned: connect is not called again for it.
      assertThat(NetPluginExport.connect(0, handle)).isZero();
      assertThat(NetPluginExport.closeListen(listener)).isZero();
    }
    for (int i = 0; i < NetPlugin.HANDLE_BYTES; i++) {
      memory.put(1024 + i, (byte) 9);
    }
    assertThat(NetPluginExport.connect(0, handle)).isEqualTo(MISUSE);
  }

  @Test
  void shouldKeepTheNetworkUntilItsLastUserIsGone() {
    assertThat(NetPluginExport.open()).isPositive();
    assertThat(NetPluginExport.release()).isZero();
    move(5);
    assertThat(NetPluginExport.release()).isZero();
    assertThat(NetPluginExport.listen(0, handle)).isEqualTo(MISUSE);
    assertThat(NetPluginExport.open()).isPositive();
  }
}
