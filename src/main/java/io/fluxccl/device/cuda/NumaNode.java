// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.device.cuda;

import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.BitSet;

/** Finds the processors near a GPU in {@code /sys} of Linux. */
final class NumaNode {
  /** An unknown node. */
  static final int UNKNOWN = -1;

  /** The folder in which Linux describes devices and nodes. */
  static final Path SYS = Path.of("/sys");

  private NumaNode() {}

  /** Returns the node of a PCI device, or {@link #UNKNOWN}. */
  static int of(Path sys, String pciBusId) {
    try {
      String text = Files.readString(sys.resolve("bus/pci/devices/" + pciBusId + "/numa_node"));
      return Math.max(Integer.parseInt(text.trim()), UNKNOWN);
    } catch (IOException | NumberFormatException e) {
      return UNKNOWN;
    }
  }

  /** Returns the processors of a node; empty if they are not known. */
  static BitSet processors(Path sys, int node) {
    BitSet processors = new BitSet();
    try {
      String list = Files.readString(sys.resolve("devices/system/node/node" + node + "/cpulist"));
      for (String range : list.trim().split(",")) {
        String[] ends = range.split("-");
        processors.set(Integer.parseInt(ends[0]), Integer.parseInt(ends[ends.length - 1]) + 1);
      }
    } catch (IOException | RuntimeException e) {
      processors.clear();
    }
    return processors;
  }
}
