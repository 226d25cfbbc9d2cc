// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

/** How the kernels of a GPU reach the memory of another one. */
public enum GpuLink {
  /** They do not. */
  NONE("none"),
  /**
   * By PCIe, or by a link of which nothing is known. Each word of up to 8 bytes arrives whole, as
   * the memory model of PTX promises; words of one store may arrive apart and in any order.
   */
  PCIE("PCIe"),
  /** By NVLink. A line of 128 bytes that a warp stores at once arrives whole, too. */
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
