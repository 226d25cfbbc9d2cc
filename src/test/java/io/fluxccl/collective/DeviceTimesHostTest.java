// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

class DeviceTimesHostTest extends DeviceTimesContract {}
