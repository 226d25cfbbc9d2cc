// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

/** The host device. */
class RandomShapesHostTest extends RandomShapesContract {}
