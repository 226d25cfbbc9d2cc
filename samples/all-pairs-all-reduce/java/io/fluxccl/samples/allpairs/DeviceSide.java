// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.allpairs;

import io.fluxccl.channel.ProxyChannel;
import io.fluxccl.channel.ProxyService;
import io.fluxccl.channel.SmChannel;
import io.fluxccl.communicator.Communicator;
import io.fluxccl.semaphore.SmDevice2DeviceSemaphore;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;

/**
 * Channels with which kernels move the bytes: SM channels to ranks of this host, proxy channels to
 * the others. The host needs no barrier; each wait consumes exactly one signal of its peer.
 */
final class DeviceSide implements AutoCloseable {
  final Mesh mesh;

  /** By buffer, then by peer. */
  final List<Map<Integer, SmChannel>> smChannels = new ArrayList<>();

  final List<Map<Integer, ProxyChannel>> proxyChannels = new ArrayList<>();

  private final ProxyService proxyService;
  private final List<SmDevice2DeviceSemaphore> semaphores = new ArrayList<>();

  private DeviceSide(Mesh mesh) {
    this.mesh = mesh;
    this.proxyService = new ProxyService(mesh.communicator);
  }

  /** Steps 4 to 6: semaphores, channels, the proxy's thread. */
  static CompletableFuture<DeviceSide> build(Mesh mesh) {
    DeviceSide side = new DeviceSide(mesh);
    Communicator communicator = mesh.communicator;
    List<Map<Integer, SmDevice2DeviceSemaphore>> sm = new ArrayList<>();
    List<Map<Integer, Integer>> proxied = new ArrayList<>();
    for (int i = 0; i < mesh.buffers.size(); i++) {
      sm.add(new HashMap<>());
      proxied.add(new HashMap<>());
      for (int peer : mesh.connections.keySet()) {
        if (mesh.isMapped(peer)) {
          SmDevice2DeviceSemaphore semaphore =
              new SmDevice2DeviceSemaphore(communicator, mesh.connections.get(peer));
          side.semaphores.add(semaphore);
          sm.get(i).put(peer, semaphore);
        } else {
          proxied
              .get(i)
              .put(
                  peer,
                  side.proxyService.buildAndAddSemaphore(communicator, mesh.connections.get(peer)));
        }
      }
    }
    return communicator.setup().thenApply(ready -> side.buildChannels(sm, proxied));
  }

  private DeviceSide buildChannels(
      List<Map<Integer, SmDevice2DeviceSemaphore>> sm, List<Map<Integer, Integer>> proxied) {
    for (int i = 0; i < mesh.buffers.size(); i++) {
      int buffer = i;
      Map<Integer, SmChannel> direct = new HashMap<>();
      sm.get(i)
          .forEach(
              (peer, semaphore) ->
                  direct.put(
                      peer,
                      new SmChannel(
                          semaphore, mesh.remote.get(buffer).get(peer), mesh.buffers.get(buffer))));
      smChannels.add(direct);
      Map<Integer, ProxyChannel> asked = new HashMap<>();
      proxied
          .get(i)
          .forEach(
              (peer, semaphore) ->
                  asked.put(
                      peer,
                      proxyService.proxyChannel(
                          semaphore,
                          proxyService.addMemory(mesh.remote.get(buffer).get(peer)),
                          proxyService.addMemory(mesh.local.get(buffer)))));
      proxyChannels.add(asked);
    }
    proxyService.startProxy();
    return this;
  }

  @Override
  public void close() {
    proxyService.close();
    semaphores.forEach(SmDevice2DeviceSemaphore::close);
  }
}
