// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.netplugin.vendor;

import io.fluxccl.DeviceFailure;
import io.fluxccl.FluxCclException;
import io.fluxccl.InvalidUsage;
import io.fluxccl.RemoteFailure;
import io.fluxccl.Text;
import io.fluxccl.Timeout;
import io.fluxccl.TransportFailure;
import io.fluxccl.netplugin.NetHandle;
import io.fluxccl.netplugin.NetPlugin;
import io.fluxccl.netplugin.NetProperties;
import io.fluxccl.netplugin.PointerType;
import java.time.Duration;
import java.util.ArrayList;
import java.util.EnumSet;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.slf4j.LoggerFactory;

/**
 * A network of a vendor's library, point-to-point or collective. It keeps the devices and the open
 * objects, and translates results to errors.
 */
abstract class VendorNetwork {
  /** The result of init if all native log slots are in use. */
  private static final int TOO_MANY = -1;

  private final long net;
  private final int version;
  private final Duration patience;
  private final String name;
  private final List<NetProperties> properties = new ArrayList<>();
  private final Set<AutoCloseable> open = ConcurrentHashMap.newKeySet();

  /**
   * Creates a network that is not initialized.
   *
   * @param net the native object
   * @param version the version of the interface
   * @param name the name that the library reports
   * @param patience how long a close waits for a call in progress
   */
  VendorNetwork(long net, int version, byte[] name, Duration patience) {
    this.net = net;
    this.version = version;
    this.name = PluginSearch.text(name);
    this.patience = patience;
  }

  /** Calls the plugin's {@code devices}. */
  abstract int readDevices(int[] count);

  /** Calls the plugin's {@code getProperties}. */
  abstract int readProperties(int device, byte[][] texts, long[] numbers);

  /**
   * Reads the devices of a network whose init has returned.
   *
   * @param result the result of init
   * @throws FluxCclException if init failed, or the network has no device
   */
  final void initialized(int result) {
    if (result == TOO_MANY) {
      throw new InvalidUsage("16 network plugins are loaded; close one before " + this);
    }
    check(result, "init");
    int[] count = new int[1];
    check(readDevices(count), "devices");
    if (count[0] < 1) {
      throw TransportFailure.of(
          FluxCclException.NO_RANK,
          "%s has no devices (%s): is its network's interface up?",
          this,
          count[0]);
    }
    for (int device = 0; device < count[0]; device++) {
      byte[][] texts = new byte[2][];
      long[] numbers = new long[NetPluginCalls.PROPERTY_NUMBERS];
      check(readProperties(device, texts, numbers), "getProperties of device " + device);
      properties.add(properties(name + "/" + device, texts, numbers));
    }
  }

  /**
   * Returns a device's properties, with the plugin's values limited to the valid ranges.
   *
   * @param otherwise the name if the plugin reports none
   * @param texts the name and the PCI path
   * @param numbers the values in the order of native/netplugin_jni.h
   */
  private static NetProperties properties(String otherwise, byte[][] texts, long[] numbers) {
    EnumSet<PointerType> pointers = EnumSet.allOf(PointerType.class);
    pointers.removeIf(type -> (numbers[1] & type.bit()) == 0);
    return new NetProperties(
        texts[0] == null ? otherwise : PluginSearch.text(texts[0]),
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
        // The plugin returns received sizes as ints.
        Math.max(1, Math.min(numbers[9], Integer.MAX_VALUE)));
  }

  /** Returns the native object. */
  final long net() {
    return net;
  }

  final int version() {
    return version;
  }

  /** Returns how long a close waits for a call in progress. */
  final Duration patience() {
    return patience;
  }

  public final String name() {
    return name;
  }

  public final int devices() {
    return properties.size();
  }

  public NetProperties properties(int device) {
    return properties.get(device);
  }

  /** Returns the bytes that a plugin has written to a handle. */
  static byte[] bytesOf(NetHandle handle) {
    byte[] bytes = new byte[NetPlugin.HANDLE_BYTES];
    handle.bytes().get(0, bytes);
    return bytes;
  }

  /** Keeps an object that is to be closed with the network, and returns it. */
  final <T extends AutoCloseable> T keep(T opened) {
    open.add(opened);
    return opened;
  }

  final void forget(AutoCloseable closed) {
    open.remove(closed);
  }

  /**
   * Throws if a result is not success.
   *
   * @param result NCCL's code, or the negated code
   * @param call the name of the call, for the message
   */
  final void check(int result, String call) {
    if (result == 0) {
      return;
    }
    int code = Math.abs(result);
    NetResult meaning = NetResult.of(code);
    String message =
        Text.of(
            "%s: %s failed with %s (%s); see what it logged",
            this, call, meaning.name().toLowerCase(Locale.ROOT).replace('_', ' '), code);
    throw switch (meaning) {
      case INVALID_USAGE, INVALID_ARGUMENT -> new InvalidUsage(message);
      case REMOTE_ERROR -> new RemoteFailure(FluxCclException.NO_RANK, message);
      case UNHANDLED_CUDA_ERROR -> new DeviceFailure(0, "UNKNOWN", message);
      default -> new TransportFailure(FluxCclException.NO_RANK, message);
    };
  }

  /** Returns an object that a call returned; throws if it is a negated code of NCCL. */
  final long checkObject(long object, String call) {
    check((int) Math.min(0, object), call);
    return object;
  }

  /**
   * Closes all open objects, and those added meanwhile: an accept in progress may add a connection
   * late.
   *
   * @throws Timeout of the first object that has a call in progress; all others are closed
   */
  final void closeAll() {
    Timeout stuck = null;
    while (!open.isEmpty()) {
      for (AutoCloseable each : open) {
        try {
          each.close();
        } catch (Timeout e) {
          stuck = stuck == null ? e : stuck;
        } catch (Exception e) {
          // The object is not needed any more, and the plugin has logged why it can't close it.
          LoggerFactory.getLogger(NativeNetPlugin.class).debug("{}", e.getMessage());
        }
        open.remove(each);
      }
    }
    if (stuck != null) {
      throw stuck;
    }
  }
}
