// SPDX-License-Identifier: Apache-2.0
// The layouts that host and device share, as values in one order: LayoutTest has the same list. The
// including file defines the macros SIZE and OFFSET.
#define FLUXCCL_LAYOUT(SIZE, OFFSET)              \
  SIZE(AbortFlag)                                 \
  OFFSET(AbortFlag, aborted)                      \
  OFFSET(AbortFlag, waitingFor)                   \
  SIZE(ProxyTrigger)                              \
  OFFSET(ProxyTrigger, first)                     \
  OFFSET(ProxyTrigger, second)                    \
  SIZE(FifoDeviceHandle)                          \
  OFFSET(FifoDeviceHandle, triggers)              \
  OFFSET(FifoDeviceHandle, head)                  \
  OFFSET(FifoDeviceHandle, tail)                  \
  OFFSET(FifoDeviceHandle, tailCache)             \
  OFFSET(FifoDeviceHandle, abort)                 \
  OFFSET(FifoDeviceHandle, size)                  \
  SIZE(SmDevice2DeviceSemaphore)                  \
  SIZE(Host2DeviceSemaphore)                      \
  OFFSET(SmDevice2DeviceSemaphore, inbound)       \
  OFFSET(SmDevice2DeviceSemaphore, expected)      \
  OFFSET(SmDevice2DeviceSemaphore, outbound)      \
  OFFSET(SmDevice2DeviceSemaphore, remoteInbound) \
  OFFSET(SmDevice2DeviceSemaphore, abort)         \
  OFFSET(SmDevice2DeviceSemaphore, peer)          \
  SIZE(ProxyChannel)                              \
  SIZE(SimpleProxyChannel)                        \
  OFFSET(ProxyChannel, fifo)                      \
  OFFSET(ProxyChannel, semaphore)                 \
  OFFSET(ProxyChannel, flushWord)                 \
  OFFSET(ProxyChannel, semaphoreId)               \
  OFFSET(ProxyChannel, targetId)                  \
  OFFSET(ProxyChannel, sourceId)                  \
  SIZE(SmChannel)                                 \
  OFFSET(SmChannel, semaphore)                    \
  OFFSET(SmChannel, target)                       \
  OFFSET(SmChannel, targetSize)                   \
  OFFSET(SmChannel, source)                       \
  OFFSET(SmChannel, sourceSize)                   \
  OFFSET(SmChannel, packets)                      \
  OFFSET(SmChannel, packetsSize)                  \
  SIZE(Ll8Packet)                                 \
  SIZE(Ll16Packet)
