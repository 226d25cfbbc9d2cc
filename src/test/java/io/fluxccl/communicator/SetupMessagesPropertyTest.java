// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.testkit.LocalRank;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.RegisteredMemory;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportFlags;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;
import net.jqwik.api.constraints.IntRange;

/** Each refused memory takes 300 ms, in which the set-up waits for a death report. */
class SetupMessagesPropertyTest {
  @Property(tries = 100)
  void shouldRefuseAnyMessageThatIsNoConnection(
      @ForAll byte[] bytes, @ForAll boolean fine, @ForAll boolean sharedMemory) {
    MalformedPeer.connect(sharedMemory ? Transport.SHM : Transport.ETHERNET, begun(bytes, fine));
  }

  @Property(tries = 25)
  void shouldRefuseAnyMessageThatIsNoMemory(@ForAll byte[] bytes, @ForAll boolean fine) {
    MalformedPeer.receive(begun(bytes, fine));
  }

  @Property(tries = 40)
  void shouldReadOrRefuseAMemoryOfWhichOneByteIsWrong(
      @ForAll @IntRange(max = 200) int index, @ForAll byte value) {
    try (LocalRanks ranks = LocalRanks.of(2)) {
      LocalRank liar = ranks.ranks().get(1);
      try (DeviceBuffer buffer = liar.device().allocate(4096);
          RegisteredMemory memory =
              liar.communicator()
                  .registerMemory(buffer, TransportFlags.of(Transport.SHM, Transport.ETHERNET))) {
        byte[] wire = memory.serialize();
        byte[] message = new byte[wire.length + 1];
        System.arraycopy(wire, 0, message, 1, wire.length);
        message[index % message.length] = value;
        MalformedPeer.receive(ranks, message);
      }
    }
  }

  private static byte[] begun(byte[] bytes, boolean fine) {
    byte[] message = bytes.clone();
    if (fine && message.length > 0) {
      message[0] = 0;
    }
    return message;
  }
}
