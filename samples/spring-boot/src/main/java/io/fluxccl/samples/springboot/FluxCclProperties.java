// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.springboot;

import io.fluxccl.bootstrap.JobSecret;
import io.fluxccl.group.DeviceChoice;
import io.fluxccl.group.JoinOptions;
import java.time.Duration;
import org.springframework.boot.context.properties.ConfigurationProperties;

/**
 * Properties {@code fluxccl.*}. Missing properties are read from the environment: the variables of
 * a launcher, or FLUXCCL_RANK and its kin.
 *
 * @param rank of this process
 * @param ranks how many the job has; with it, rank and address are needed
 * @param address {@code ip:port} of rank 0, the same on all ranks
 * @param secret that all ranks share
 * @param name of the job
 * @param device auto, host, cuda or cuda:N
 * @param joinTimeout how long a rank waits for the others
 * @param timeout of each collective
 */
@ConfigurationProperties("fluxccl")
public record FluxCclProperties(
    Integer rank,
    Integer ranks,
    String address,
    String secret,
    String name,
    String device,
    Duration joinTimeout,
    Duration timeout) {
  JoinOptions joinOptions() {
    JoinOptions options =
        ranks == null
            ? JoinOptions.fromEnvironment()
            : JoinOptions.of(rank == null ? 0 : rank, ranks);
    options = address == null ? options : options.withAddress(address);
    options = secret == null ? options : options.withSecret(JobSecret.of(secret));
    options = name == null ? options : options.withName(name);
    options = device == null ? options : options.withDevice(DeviceChoice.parse(device));
    options = joinTimeout == null ? options : options.withJoinTimeout(joinTimeout);
    return timeout == null ? options : options.withTimeout(timeout);
  }
}
