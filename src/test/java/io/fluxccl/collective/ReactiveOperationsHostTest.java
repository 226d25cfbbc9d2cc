// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.collective;

/** Ranks on the host device. */
class ReactiveOperationsHostTest extends ReactiveOperationsContract {}
