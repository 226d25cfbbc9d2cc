// SPDX-License-Identifier: Apache-2.0
/**
 * Ranks in one JVM for tests of code that uses FluxCCL, without a network and without a GPU.
 *
 * <p>Imports all layers below.
 */
package io.fluxccl.testkit;
