// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.tcp;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.netplugin.MessageLink;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetRequest;
import java.nio.ByteBuffer;
import java.util.Random;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** Short messages, many of which leave in one system call. */
@Timeout(60)
class TcpShortMessagesTest extends TcpFixture {
  private static final int SLOTS = NetPlugin.MAX_REQUESTS;
  private static final int SLOT = 2048;
  private static final int MESSAGES = 50_000;

  private final int[] sizes = new Random(1).ints(MESSAGES, 0, 1100).toArray();
  private final NetRequest[] sends = new NetRequest[SLOTS];
  private final NetRequest[] receives = new NetRequest[SLOTS];

  /** The number of times that the socket took no more. */
  private int stops;

  @Test
  void shouldDeliverEachMessageWhenTheSocketTakesOnlyPartOfThem() {
    MessageLink link = link(OPTIONS, SLOTS * SLOT);
    int sent = 0;
    int done = 0;
    int posted = 0;
    int received = 0;
    while (received < MESSAGES) {
      // The last sends move only when they are tested, as all others.
      boolean stopped = false;
      while (!stopped && done < MESSAGES) {
        if (sent < MESSAGES && sent - done < SLOTS) {
          send(link, sent++);
        } else if (sends[done % SLOTS].test()) {
          done++;
        } else {
          stopped = true;
        }
      }
      stops += stopped ? 1 : 0;
      while (posted < MESSAGES && posted - received < SLOTS) {
        receives[posted % SLOTS] = link.irecv(posted % SLOTS * SLOT, SLOT);
        posted++;
      }
      while (received < posted && receives[received % SLOTS].test()) {
        assertReceived(link, received++);
      }
    }
    assertThat(stops).isPositive();
  }

  private void send(MessageLink link, int message) {
    int offset = message % SLOTS * SLOT;
    for (int i = 0; i < sizes[message]; i++) {
      link.source.put(offset + i, (byte) (message + i));
    }
    sends[message % SLOTS] = link.isend(offset, sizes[message]);
  }

  private void assertReceived(MessageLink link, int message) {
    assertThat(receives[message % SLOTS].size(0)).isEqualTo(sizes[message]);
    ByteBuffer bytes = link.target.duplicate().position(message % SLOTS * SLOT);
    for (int i = 0; i < sizes[message]; i++) {
      if (bytes.get() != (byte) (message + i)) {
        assertThat(i).as("the first wrong byte of message %s", message).isEqualTo(sizes[message]);
      }
    }
  }
}
