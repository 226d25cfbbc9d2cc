// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.group;

import io.fluxccl.InvalidUsage;
import io.fluxccl.device.Device;
import io.fluxccl.device.cuda.CudaDevice;
import io.fluxccl.device.cuda.CudaDriver;
import io.fluxccl.device.host.HostDevice;
import io.fluxccl.device.host.HostDeviceOptions;
import io.fluxccl.settings.Settings;

/**
 * The device on which a rank works. As text: {@code auto}, {@code host}, {@code cuda}, or {@code
 * cuda:N} for one GPU. Immutable.
 *
 * @param text as {@link #parse} takes it
 */
public record DeviceChoice(String text) {
  /** A GPU when there is any, the host otherwise. */
  public static final DeviceChoice AUTO = new DeviceChoice("auto");

  /** The host. */
  public static final DeviceChoice HOST = new DeviceChoice("host");

  /** A GPU, or an error. */
  public static final DeviceChoice CUDA = new DeviceChoice("cuda");

  /** The environment variable in which the text is looked for. */
  public static final String VARIABLE = "FLUXCCL_DEVICE";

  /** The system property in which the text is looked for first. */
  public static final String PROPERTY = "fluxccl.device";

  private static final int NO_INDEX = -1;
  private static final String INDEXED = "cuda:";

  /** Refuses a text that names no device. */
  public DeviceChoice {
    if (!text.matches("auto|host|cuda|cuda:\\d{1,4}")) {
      throw InvalidUsage.of("device=%s is none of auto, host, cuda, cuda:N", text);
    }
  }

  /**
   * Returns the choice of one GPU.
   *
   * @param index its number among those that this process sees, from 0
   * @return the choice
   * @throws InvalidUsage if it is negative
   */
  public static DeviceChoice cuda(int index) {
    if (index < 0) {
      throw new InvalidUsage("device=" + INDEXED + index + "; GPUs are counted from 0");
    }
    return new DeviceChoice(INDEXED + index);
  }

  /**
   * Returns the choice that a text names.
   *
   * @param text {@code auto}, {@code host}, {@code cuda} or {@code cuda:N}
   * @return the choice
   * @throws InvalidUsage if it is none of those
   */
  public static DeviceChoice parse(String text) {
    return new DeviceChoice(text);
  }

  /**
   * Returns the choice of the system property {@value #PROPERTY}, or else of the environment
   * variable {@value #VARIABLE}, or else {@link #AUTO}.
   *
   * @throws InvalidUsage if that names no device
   */
  public static DeviceChoice fromEnvironment() {
    return from(Settings.ofProcess());
  }

  static DeviceChoice from(Settings settings) {
    return settings.word(VARIABLE, DeviceChoice::parse).orElse(AUTO);
  }

  /**
   * Returns the GPU of a rank of this host.
   *
   * @param localRank its number among the ranks of this host, from 0
   * @param gpus how many GPUs this process sees
   * @param unavailable why there are none, for the error
   * @return the GPU's number, or negative for the host
   * @throws InvalidUsage if a GPU was asked for and there is none
   */
  int gpuFor(int localRank, int gpus, String unavailable) {
    if (equals(HOST) || (equals(AUTO) && gpus == 0)) {
      return NO_INDEX;
    }
    if (gpus == 0) {
      throw InvalidUsage.of("device=%s: %s; use device=host", this, unavailable);
    }
    int index =
        text.startsWith(INDEXED) ? Integer.parseInt(text.substring(INDEXED.length())) : NO_INDEX;
    if (index >= gpus) {
      throw InvalidUsage.of("device=%s: this process sees %s GPUs, from cuda:0", this, gpus);
    }
    return index != NO_INDEX ? index : localRank % gpus;
  }

  /**
   * Opens the device for a rank: the named GPU, else GPU {@code localRank} modulo the number of
   * GPUs, or the host device.
   *
   * @param localRank the rank's number among those of this host, from 0
   * @param name for thread names of a host device
   * @return the device; the caller closes it
   * @throws InvalidUsage if a GPU was asked for and there is none
   * @throws io.fluxccl.DeviceFailure if the driver refuses
   */
  public Device open(int localRank, String name) {
    int gpu = gpuFor(localRank);
    return gpu >= 0
        ? CudaDevice.open(gpu)
        : HostDevice.create(HostDeviceOptions.DEFAULT.withIndex(localRank).withName(name));
  }

  /** Returns the number of the GPU that {@link #open} opens, or negative for the host. */
  int gpuFor(int localRank) {
    // A driver that is not needed is not loaded.
    int gpus = equals(HOST) ? 0 : CudaDriver.count();
    String unavailable = equals(HOST) ? "" : CudaDriver.unavailableBecause().orElse("no GPU");
    return gpuFor(localRank, gpus, unavailable);
  }

  /** Returns whether {@link #open} opens the host device, or fails. */
  boolean isHost() {
    return equals(HOST) || (equals(AUTO) && CudaDriver.count() == 0);
  }

  /** Returns the text, as {@link #parse} takes it. */
  @Override
  public String toString() {
    return text;
  }
}
