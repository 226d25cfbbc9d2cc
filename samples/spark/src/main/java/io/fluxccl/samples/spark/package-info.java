// SPDX-License-Identifier: Apache-2.0
/** Ranks that are the tasks of a barrier stage of Apache Spark. */
package io.fluxccl.samples.spark;
