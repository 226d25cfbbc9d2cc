// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.communicator;

import static org.assertj.core.api.Assertions.assertThat;
import static org.assertj.core.api.Assertions.assertThatThrownBy;
import static org.awaitility.Awaitility.await;
import static org.mockito.ArgumentMatchers.any;
import static org.mockito.Mockito.doThrow;
import static org.mockito.Mockito.mock;
import static org.mockito.Mockito.verify;

import io.fluxccl.bootstrap.LocalBootstrap;
import io.fluxccl.device.DeviceStream;
import io.fluxccl.device.KernelArgs;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostKernel;
import io.fluxccl.transport.EndpointConfig;
import io.fluxccl.transport.Transport;
import io.fluxccl.transport.TransportProvider;
import io.fluxccl.transport.net.WatchedDevice;
import java.util.List;
import java.util.ServiceConfigurationError;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.junit.jupiter.api.AfterEach;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.Timeout;

/** A communicator with resources that fail to close. */
@Timeout(60)
class CommunicatorCloseTest {
  private static final String[] ALL = {
    "connection of SHM", "connection of SHM", "connection of ETHERNET", "SHM", "ETHERNET"
  };

  private final RuntimeException first = new IllegalStateException("a connection can't be closed");
  private final Error second = new InternalError("a transport can't be closed");
  private final MockTransports transports = new MockTransports();
  private final WatchedDevice device = new WatchedDevice(HostDevice.create());
  private final LocalBootstrap bootstrap = LocalBootstrap.group(1).get(0);
  private Communicator communicator;

  @BeforeEach
  void open() throws Exception {
    // A provider that can't be loaded does no harm, unless its transport is asked for.
    Iterable<TransportProvider> brokenAfterTheFirst =
        () ->
            Stream.iterate(0, i -> i + 1)
                .map(i -> i == 0 ? transports.provider : broken())
                .iterator();
    communicator =
        Communicator.create(
            bootstrap, device, CommunicatorOptions.DEFAULT, () -> brokenAfterTheFirst);
    communicator.connectOnSetup(0, 0, EndpointConfig.of(Transport.SHM));
    communicator.connectOnSetup(0, 1, EndpointConfig.of(Transport.SHM));
    communicator.connectOnSetup(0, 2, EndpointConfig.of(Transport.ETHERNET));
    communicator.setup().get(30, TimeUnit.SECONDS);
  }

  private static TransportProvider broken() {
    throw new ServiceConfigurationError("the class of a provider is missing");
  }

  @AfterEach
  void close() {
    device.closeBadly(false);
    device.close();
    bootstrap.close();
  }

  private static List<Throwable> suppressedBy(Throwable failure) {
    return List.of(failure.getSuppressed());
  }

  @Test
  void shouldCloseAllPartsAndReportEachFailureToClose() {
    transports.refuseConnections(Transport.SHM, first);
    transports.refuse(Transport.SHM, second);
    device.closeBadly(true); // the word that kernels watch is in pinned memory

    assertThatThrownBy(communicator::close).isSameAs(first);

    assertThat(transports.closed).containsExactlyInAnyOrder(ALL);
    assertThat(suppressedBy(first)).hasSize(2).contains(second);
    assertThat(suppressedBy(first))
        .anySatisfy(other -> assertThat(other).hasMessage("pinned memory can't be closed"));
    assertThat(communicator.isClosed()).isTrue();
  }

  @Test
  void shouldCloseAllPartsWhenAQueuedOperationCannotBeEnded() {
    SetupOperation queued = mock(SetupOperation.class);
    doThrow(first).when(queued).fail(any());
    communicator.onSetup(queued);
    transports.refuse(Transport.ETHERNET, second);

    assertThatThrownBy(communicator::close).isSameAs(first);

    verify(queued).fail(any());
    assertThat(transports.closed).containsExactlyInAnyOrder(ALL);
    assertThat(suppressedBy(first)).containsExactly(second);
  }

  /** Resources closed after a kernel have no caller; the kernel's stream must not fail either. */
  @Test
  void shouldNotFailTheStreamIfCloseThrowsAfterItsKernel() throws Exception {
    CountDownLatch running = new CountDownLatch(1);
    CountDownLatch release = new CountDownLatch(1);
    DeviceStream stream = device.createStream("of a test");
    stream.launch(
        HostKernel.of(
            "waits",
            (thread, args) -> {
              running.countDown();
              try {
                release.await();
              } catch (InterruptedException e) {
                throw new IllegalStateException(e);
              }
            }),
        1,
        1,
        KernelArgs.NONE);
    running.await();
    transports.refuseConnections(Transport.SHM, first);
    transports.refuse(Transport.SHM, second);

    communicator.close();

    assertThat(transports.closed).as("kernels may still use it").isEmpty();
    release.countDown();
    await().untilAsserted(() -> assertThat(transports.closed).containsExactlyInAnyOrder(ALL));
    stream.completion().get(30, TimeUnit.SECONDS);
    assertThat(suppressedBy(first)).contains(second);
  }
}
