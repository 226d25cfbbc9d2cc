package io.fluxccl.transport.ib.disni;

import com.ibm.disni.util.MemoryUtils;
import com.ibm.disni.verbs.RdmaCm;
import com.ibm.disni.verbs.RdmaVerbs;
import io.fluxccl.transport.ib.Verbs;
import io.fluxccl.transport.ib.VerbsPort;
import java.io.IOException;
import java.net.Inet4Address;
import java.nio.ByteBuffer;

/** RDMA verbs implemented by DiSNI. {@code VerbsLibrary} creates this class by name. */
public final class DisniVerbs implements Verbs {
  /**
   * Loads DiSNI with its native library.
   *
   * @throws IOException if their versions do not match
   * @throws UnsatisfiedLinkError if the library can't be loaded
   * @throws IllegalAccessError if this JVM does not let DiSNI read addresses of buffers
   */
  public DisniVerbs() throws IOException {
    RdmaCm.open();
    RdmaVerbs.open();
    MemoryUtils.getAddress(ByteBuffer.allocateDirect(1));
  }

  @Override
  public VerbsPort open(Inet4Address address, VerbsPort.Requests requests) throws IOException {
    return DisniPort.open(address, requests);
  }
}
