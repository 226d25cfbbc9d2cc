// SPDX-License-Identifier: Apache-2.0
package io.fluxccl;

import java.util.Optional;

/**
 * A library that only a part of FluxCCL needs, or a part of FluxCCL in a jar of its own. An
 * application that uses it adds it as a Maven dependency.
 */
@Experimental
public enum OptionalLibrary {
  /** The transports IB0 to IB7. */
  RDMA("fluxccl-rdma", "io/fluxccl/transport/ib/IbTransport", "io.fluxccl:fluxccl-rdma"),
  /** The transport NET, and networks that reduce data themselves. */
  NCCL("fluxccl-nccl", "io/fluxccl/transport/plugin/NetTransport", "io.fluxccl:fluxccl-nccl"),
  /** Products of matrices. */
  MATMUL("fluxccl-matmul", "io/fluxccl/matmul/MatrixProducts", "io.fluxccl:fluxccl-matmul"),
  /** GPUs. */
  JCUDA(
      "JCuda",
      "jcuda/driver/JCudaDriver",
      "org.jcuda:jcuda:12.6.0 and org.jcuda:jcuda-natives:12.6.0 (classifier linux-x86_64)"),
  /** RDMA. */
  DISNI("DiSNI", "com/ibm/disni/verbs/RdmaCm", "com.ibm.disni:disni:2.1"),
  /** The command line. */
  PICOCLI("picocli", "picocli/CommandLine", "info.picocli:picocli:4.7.7"),
  /** TLS of the bootstrap. */
  NETTY_HANDLER(
      "Netty's TLS", "io/netty/handler/ssl/SslHandler", "io.netty:netty-handler:4.2.18.Final");

  private final String title;
  private final String resource;
  private final String coordinates;

  OptionalLibrary(String title, String type, String coordinates) {
    this.title = title;
    this.resource = type + ".class";
    this.coordinates = coordinates;
  }

  /**
   * Returns the Maven coordinates to add, as {@code group:artifact:version}. FluxCCL's own have no
   * version: it is that of this jar.
   */
  public String coordinates() {
    return coordinates;
  }

  /** Returns why the library can't be used and what to add, or empty if it is on the class path. */
  public Optional<String> missingReason() {
    ClassLoader loader = OptionalLibrary.class.getClassLoader();
    String text = "%s is not on the class path; add the Maven dependency %s";
    return Optional.of(Text.of(text, title, coordinates))
        .filter(reason -> loader.getResource(resource) == null);
  }
}
