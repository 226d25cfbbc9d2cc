// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

import io.fluxccl.testing.EmulatedGpus;

/** Four GPUs whose kernels run on the CPU; eight ranks share them. */
@EmulatedGpus
class RoutedEmulatedTest extends RoutedContract {}
