package io.fluxccl.transport.ethernet;

import static io.fluxccl.transport.ethernet.FrameStreams.allFrames;
import static io.fluxccl.transport.ethernet.FrameStreams.decodeOrRefuse;
import static io.fluxccl.transport.ethernet.FrameStreams.wireOrRefuse;

import java.util.Random;
import net.jqwik.api.ForAll;
import net.jqwik.api.Property;

class FramePropertyTest {
  @Property(tries = 2000)
  void shouldRefuseOrDecodeWhateverComes(@ForAll long seed) {
    Random random = new Random(seed);
    byte[] bytes = allFrames();
    for (int flips = random.nextInt(4); flips > 0; flips--) {
      bytes[random.nextInt(bytes.length)] ^= (byte) (1 << random.nextInt(8));
    }
    decodeOrRefuse(bytes, 1 + random.nextInt(bytes.length));
  }

  @Property(tries = 500)
  void shouldRefuseOrDecodeEndpointWires(@ForAll byte[] bytes) {
    wireOrRefuse(bytes);
  }
}
