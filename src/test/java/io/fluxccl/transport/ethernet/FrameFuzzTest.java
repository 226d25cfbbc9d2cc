package io.fluxccl.transport.ethernet;

import static io.fluxccl.transport.ethernet.FrameStreams.decodeOrRefuse;
import static io.fluxccl.transport.ethernet.FrameStreams.wireOrRefuse;

import com.code_intelligence.jazzer.junit.FuzzTest;

class FrameFuzzTest {
  @FuzzTest(maxDuration = "75s")
  void fuzzFrames(byte[] bytes) {
    decodeOrRefuse(bytes, bytes.length == 0 ? 0 : (bytes[0] & 0xff) % (bytes.length + 1));
  }

  @FuzzTest(maxDuration = "75s")
  void fuzzWires(byte[] bytes) {
    wireOrRefuse(bytes);
  }
}
