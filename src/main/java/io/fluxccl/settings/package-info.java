// SPDX-License-Identifier: Apache-2.0
/** Every environment variable of FluxCCL, declared in one table. */
package io.fluxccl.settings;
