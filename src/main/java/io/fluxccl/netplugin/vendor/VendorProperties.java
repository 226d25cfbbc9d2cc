package io.fluxccl.netplugin.vendor;

import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.PointerType;
import java.util.EnumSet;

/** What native code read of a device's properties, made into Java's, whatever the plugin said. */
final class VendorProperties {
  private VendorProperties() {}

  /**
   * @param name where the plugin gave none
   * @param texts name and path
   * @param numbers in the order of native/netplugin_jni.h
   */
  static NetProperties of(String name, byte[][] texts, long[] numbers) {
    EnumSet<PointerType> pointers = EnumSet.noneOf(PointerType.class);
    for (PointerType type : PointerType.values()) {
      if ((numbers[1] & type.bit()) != 0) {
        pointers.add(type);
      }
    }
    return new NetProperties(
        texts[0] == null ? name : PluginSearch.text(texts[0]),
        texts[1] == null ? null : PluginSearch.text(texts[1]),
        numbers[0],
        pointers,
        numbers[2] != 0,
        numbers[3] != 0,
        (int) numbers[4],
        (int) numbers[5],
        numbers[6] / 1000f,
        (int) Math.max(1, numbers[7]),
        (int) Math.max(1, Math.min(numbers[8], NetPluginCalls.MAX_GROUP)),
        // Sizes that were received come back as ints.
        Math.max(1, Math.min(numbers[9], Integer.MAX_VALUE)));
  }
}
