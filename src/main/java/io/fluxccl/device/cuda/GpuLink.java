// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

/** The link by which kernels of a GPU reach the memory of another one. */
public enum GpuLink {
  /** No link. */
  NONE("none"),
  /**
   * PCIe, or an unknown link. Each word of up to 8 bytes arrives whole, as the memory model of PTX
   * guarantees. Words of one store may arrive separately and in any order.
   */
  PCIE("PCIe"),
  /** NVLink. A line of 128 bytes that a warp stores at once arrives whole, too. */
  NVLINK("NVLink");

  private final String label;

  GpuLink(String label) {
    this.label = label;
  }

  @Override
  public String toString() {
    return label;
  }
}
