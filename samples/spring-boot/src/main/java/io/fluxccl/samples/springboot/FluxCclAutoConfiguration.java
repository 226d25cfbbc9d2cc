// SPDX-License-Identifier: Apache-2.0
package io.fluxccl.samples.springboot;

import io.fluxccl.collective.Collectives;
import io.fluxccl.group.GroupMeters;
import io.fluxccl.group.JoinOptions;
import io.fluxccl.group.RankGroup;
import io.micrometer.core.instrument.MeterRegistry;
import org.springframework.boot.autoconfigure.AutoConfiguration;
import org.springframework.boot.autoconfigure.condition.ConditionalOnClass;
import org.springframework.boot.autoconfigure.condition.ConditionalOnMissingBean;
import org.springframework.boot.context.properties.EnableConfigurationProperties;
import org.springframework.boot.health.contributor.HealthIndicator;
import org.springframework.context.annotation.Bean;
import org.springframework.context.annotation.Configuration;

/**
 * This process's rank as beans: the group, which the application joins while it starts and leaves
 * when it ends, and its collectives; its failure as health; its meters.
 */
@AutoConfiguration
@ConditionalOnClass(RankGroup.class)
@EnableConfigurationProperties(FluxCclProperties.class)
public class FluxCclAutoConfiguration {
  @Bean
  @ConditionalOnMissingBean
  JoinOptions joinOptions(FluxCclProperties properties) {
    return properties.joinOptions();
  }

  /** Waits for the other ranks, up to the join limit. */
  @Bean(destroyMethod = "close")
  @ConditionalOnMissingBean
  RankGroup rankGroup(JoinOptions options) {
    return RankGroup.join(options).join();
  }

  /** The group closes them. */
  @Bean(destroyMethod = "")
  @ConditionalOnMissingBean
  Collectives collectives(RankGroup group) {
    return group.collectives();
  }

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(HealthIndicator.class)
  static class Health {
    @Bean
    HealthIndicator fluxcclHealthIndicator(RankGroup group) {
      return new GroupHealth(group);
    }
  }

  @Configuration(proxyBeanMethods = false)
  @ConditionalOnClass(MeterRegistry.class)
  static class Meters {
    @Bean
    GroupMeters groupMeters(MeterRegistry registry, RankGroup group) {
      GroupMeters meters = GroupMeters.register(registry);
      meters.follow(group);
      return meters;
    }
  }
}
