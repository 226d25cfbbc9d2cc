// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import static io.fluxccl.testing.FailureAssertions.assertRefused;
import static org.assertj.core.api.Assertions.assertThat;
import static org.mockito.Mockito.CALLS_REAL_METHODS;
import static org.mockito.Mockito.doReturn;
import static org.mockito.Mockito.mock;

import io.fluxccl.bootstrap.JobInquiry;
import io.fluxccl.collective.Registration;
import io.fluxccl.device.DeviceBuffer;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testkit.LocalRanks;
import io.fluxccl.transport.Endpoint;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.time.Duration;
import java.util.Optional;
import org.junit.jupiter.api.Test;

/** Former names of the stable API, which delegate to the present ones. */
@SuppressWarnings("deprecation")
class DeprecatedNamesTest {
  @Test
  void shouldDelegateToThePresentNames() {
    ByteBuffer memory = ByteBuffer.allocateDirect(64).order(ByteOrder.nativeOrder());
    try (LocalRanks ranks = LocalRanks.of(2)) {
      ranks.run(
          rank -> {
            rank.meet();
            try (DeviceBuffer buffer = ((HostDevice) rank.device()).wrap(memory);
                Registration registration = rank.collectives().register(buffer).join()) {
              assertThat(buffer.unshareableBecause())
                  .isPresent()
                  .isEqualTo(buffer.unshareableReason());
              assertThat(registration.stagedBecause())
                  .isPresent()
                  .isEqualTo(registration.stagedReason());
            }
          });
    }
  }

  @Test
  void shouldAskAnEndpointThatOverridesTheFormerName() {
    Endpoint former = mock(Endpoint.class, CALLS_REAL_METHODS);
    doReturn(true).when(former).meetsPeer();
    assertThat(former.needsReadyExchange()).isTrue();
  }

  @Test
  void shouldRequestDumpsByTheFormerName() {
    JobInquiry inquiry = new JobInquiry(true, Duration.ofSeconds(1));
    assertRefused(() -> inquiry.ofProcess(Integer.MAX_VALUE));
    assertRefused(() -> inquiry.ofAddress("nowhere", Optional.empty()));
  }
}
