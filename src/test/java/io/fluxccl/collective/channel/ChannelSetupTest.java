package io.fluxccl.collective.channel;

import static org.assertj.core.api.Assertions.assertThat;

import io.fluxccl.collective.Collectives;
import io.fluxccl.device.Device;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.testkit.LocalRanks;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.junit.jupiter.api.RepeatedTest;
import org.junit.jupiter.api.Timeout;

/** How pipes are set up. */
@Timeout(120)
class ChannelSetupTest {
  private final Set<String> allocating = ConcurrentHashMap.newKeySet();

  /** A device of the host that notes who allocates. */
  private Device watched(int rank) {
    Device device = HostDevice.create();
    return (Device)
        Proxy.newProxyInstance(
            Device.class.getClassLoader(),
            new Class<?>[] {Device.class},
            (proxy, method, args) -> {
              if (method.getName().equals("allocate")) {
                allocating.add(Thread.currentThread().getName());
              }
              try {
                return method.invoke(device, args);
              } catch (InvocationTargetException e) {
                throw e.getCause();
              }
            });
  }

  @RepeatedTest(5)
  void shouldAllocateOnNoThreadThatMustNotBlock() {
    try (LocalRanks ranks = LocalRanks.ofHosts(2, 1, this::watched)) {
      ranks.run(
          rank -> {
            Collectives.create(rank.communicator()).join();
            rank.meet();
          });
    }
    assertThat(allocating).isNotEmpty().noneMatch(name -> name.startsWith("fluxccl-bootstrap"));
  }
}
