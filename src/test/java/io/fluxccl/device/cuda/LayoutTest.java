// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.channel.PacketType;
import io.fluxccl.channel.ProxyChannelDescriptor;
import io.fluxccl.channel.SmChannelDescriptor;
import io.fluxccl.device.AbortFlagDescriptor;
import io.fluxccl.proxy.ChannelTrigger;
import io.fluxccl.proxy.ChannelTrigger.Argument;
import io.fluxccl.proxy.FifoDescriptor;
import io.fluxccl.proxy.ProxyTrigger;
import io.fluxccl.semaphore.SemaphoreDescriptor;
import java.nio.file.Path;
import java.util.LinkedHashMap;
import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

/** Compares the device API's structures with the descriptors of the host. */
class LayoutTest {
  private static final int RING = 16;

  @Test
  void shouldLayOutStructuresAsTheHostDoes(@TempDir Path folder) throws Exception {
    Path program = folder.resolve("layout");
    Path source = CudaSources.TESTS.resolve("layout.cpp");
    assertThat(CudaSources.gcc(source, "-o", program.toString())).isEmpty();

    Map<String, Long> printed = new LinkedHashMap<>();
    for (String line : CudaSources.run(program.toString()).split("\n")) {
      String[] value = line.split("=");
      printed.put(value[0], Long.parseUnsignedLong(value[1]));
    }

    Map<String, Long> expected = layouts();
    expected.putAll(packedWords());
    // The kernel that writes them relies on the order.
    assertThat(printed.entrySet()).containsExactlyElementsOf(expected.entrySet());
  }

  /** Returns the values that layout.cuh lists, in its order. */
  static Map<String, Long> layouts() {
    Map<String, Long> values = new LinkedHashMap<>();
    put(values, "AbortFlag", AbortFlagDescriptor.LENGTH);
    put(values, "AbortFlag.aborted", AbortFlagDescriptor.ABORTED_OFFSET);
    put(values, "AbortFlag.waitingFor", AbortFlagDescriptor.WAITING_FOR_OFFSET);
    put(values, "ProxyTrigger", FifoDescriptor.TRIGGER_LENGTH);
    put(values, "ProxyTrigger.first", FifoDescriptor.FIRST_OFFSET);
    put(values, "ProxyTrigger.second", FifoDescriptor.SECOND_OFFSET);
    put(values, "FifoDeviceHandle", FifoDescriptor.HANDLE_LENGTH);
    put(values, "FifoDeviceHandle.triggers", FifoDescriptor.HANDLE_TRIGGERS_OFFSET);
    put(values, "FifoDeviceHandle.head", FifoDescriptor.HANDLE_HEAD_OFFSET);
    put(values, "FifoDeviceHandle.tail", FifoDescriptor.HANDLE_TAIL_OFFSET);
    put(values, "FifoDeviceHandle.tailCache", FifoDescriptor.HANDLE_TAIL_CACHE_OFFSET);
    put(values, "FifoDeviceHandle.abort", FifoDescriptor.HANDLE_ABORT_OFFSET);
    put(values, "FifoDeviceHandle.size", FifoDescriptor.HANDLE_SIZE_OFFSET);
    put(values, "SmDevice2DeviceSemaphore", SemaphoreDescriptor.HANDLE_LENGTH);
    put(values, "Host2DeviceSemaphore", SemaphoreDescriptor.HANDLE_LENGTH);
    put(values, "SmDevice2DeviceSemaphore.inbound", SemaphoreDescriptor.HANDLE_INBOUND_OFFSET);
    put(values, "SmDevice2DeviceSemaphore.expected", SemaphoreDescriptor.HANDLE_EXPECTED_OFFSET);
    put(values, "SmDevice2DeviceSemaphore.outbound", SemaphoreDescriptor.HANDLE_OUTBOUND_OFFSET);
    put(
        values,
        "SmDevice2DeviceSemaphore.remoteInbound",
        SemaphoreDescriptor.HANDLE_REMOTE_INBOUND_OFFSET);
    put(values, "SmDevice2DeviceSemaphore.abort", SemaphoreDescriptor.HANDLE_ABORT_OFFSET);
    put(values, "SmDevice2DeviceSemaphore.peer", SemaphoreDescriptor.HANDLE_PEER_OFFSET);
    put(values, "ProxyChannel", ProxyChannelDescriptor.LENGTH);
    put(values, "SimpleProxyChannel", ProxyChannelDescriptor.LENGTH);
    put(values, "ProxyChannel.fifo", ProxyChannelDescriptor.FIFO_OFFSET);
    put(values, "ProxyChannel.semaphore", ProxyChannelDescriptor.SEMAPHORE_OFFSET);
    put(values, "ProxyChannel.flushWord", ProxyChannelDescriptor.FLUSH_WORD_OFFSET);
    put(values, "ProxyChannel.semaphoreId", ProxyChannelDescriptor.SEMAPHORE_ID_OFFSET);
    put(values, "ProxyChannel.targetId", ProxyChannelDescriptor.TARGET_ID_OFFSET);
    put(values, "ProxyChannel.sourceId", ProxyChannelDescriptor.SOURCE_ID_OFFSET);
    put(values, "SmChannel", SmChannelDescriptor.LENGTH);
    put(values, "SmChannel.semaphore", SmChannelDescriptor.SEMAPHORE_OFFSET);
    put(values, "SmChannel.target", SmChannelDescriptor.TARGET_OFFSET);
    put(values, "SmChannel.targetSize", SmChannelDescriptor.TARGET_SIZE_OFFSET);
    put(values, "SmChannel.source", SmChannelDescriptor.SOURCE_OFFSET);
    put(values, "SmChannel.sourceSize", SmChannelDescriptor.SOURCE_SIZE_OFFSET);
    put(values, "SmChannel.packets", SmChannelDescriptor.PACKETS_OFFSET);
    put(values, "SmChannel.packetsSize", SmChannelDescriptor.PACKETS_SIZE_OFFSET);
    put(values, "Ll8Packet", PacketType.LL8.length());
    put(values, "Ll16Packet", PacketType.LL16.length());
    return values;
  }

  /** Returns the words that layout.cpp packs, and commit bits of three laps of a 16-slot ring. */
  private static Map<String, Long> packedWords() {
    Map<String, Long> values = new LinkedHashMap<>();
    int type = ChannelTrigger.DATA | ChannelTrigger.FLUSH;
    putTrigger(
        values,
        "trigger",
        ChannelTrigger.first(0xfedcba98L, 0x89abcdefL),
        ChannelTrigger.second(0x87654321L, 511, 256, type, 1023));
    putRefused(values, "size", 1L << 32, Argument.SIZE);
    putRefused(values, "sourceOffset", (1L << 32) + 16, Argument.SOURCE_OFFSET);
    putRefused(values, "destinationOffset", -1, Argument.DESTINATION_OFFSET);
    putRefused(values, "sourceMemory", 512, Argument.SOURCE_MEMORY);
    putRefused(values, "destinationMemory", 513, Argument.DESTINATION_MEMORY);
    for (long position = 0; position < 40; position += 8) {
      values.put("commit" + position, ProxyTrigger.commit(-1L, position / RING));
    }
    return values;
  }

  private static void putRefused(
      Map<String, Long> values, String name, long value, Argument argument) {
    putTrigger(values, name, value, ChannelTrigger.refused(argument, 1023));
  }

  private static void putTrigger(Map<String, Long> values, String name, long first, long second) {
    values.put(name + ".first", first);
    values.put(name + ".second", second);
  }

  private static void put(Map<String, Long> values, String name, int value) {
    values.put(name, (long) value);
  }
}
