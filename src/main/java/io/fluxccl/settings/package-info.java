// SPDX-License-Identifier: Apache-2.0
/** Every environment variable of FluxCCL, declared in one table and read strictly. */
package io.fluxccl.settings;
