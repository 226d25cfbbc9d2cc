// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.transport.ib.disni;

import com.ibm.disni.util.MemoryUtils;
import com.ibm.disni.verbs.RdmaVerbs;
import com.ibm.disni.verbs.impl.NativeDispatcher;
import io.fluxccl.transport.ib.Verbs;
import java.io.IOException;
import java.lang.reflect.Constructor;
import java.nio.ByteBuffer;
import java.util.List;

/** RDMA verbs implemented by DiSNI. {@code VerbsLibrary} creates this class by name. */
public final class DisniVerbs implements Verbs {
  /** DiSNI's native methods, which its objects need. */
  private final NativeDispatcher dispatcher;

  /**
   * Loads DiSNI with its native library.
   *
   * @throws IOException if their versions do not match
   * @throws UnsatisfiedLinkError if the library can't be loaded
   * @throws ReflectiveOperationException if this is another DiSNI
   * @throws IllegalAccessError if this JVM does not let DiSNI read addresses of buffers
   */
  public DisniVerbs() throws IOException, ReflectiveOperationException {
    RdmaVerbs.open();
    // DiSNI keeps its own to itself, and creates devices and queue pairs by rdma_cm only.
    Constructor<NativeDispatcher> constructor = NativeDispatcher.class.getDeclaredConstructor();
    constructor.setAccessible(true);
    this.dispatcher = constructor.newInstance();
    MemoryUtils.getAddress(ByteBuffer.allocateDirect(1));
  }

  @Override
  public List<String> deviceNames() throws IOException {
    return List.of(VerbsCalls.deviceNames());
  }

  @Override
  public Verbs.Port open(String device, int port) throws IOException {
    return DisniPort.open(dispatcher, device, port);
  }
}
