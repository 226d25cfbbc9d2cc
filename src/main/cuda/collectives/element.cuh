// How elements of each type are combined: the twin of HostReduction, the same bits.
//
// 16-bit floating-point values are combined as floats and rounded once. Integers wrap around. Minimum and maximum of
// floating-point values are NaN if one is.
#pragma once

#include <fluxccl/config.cuh>

namespace fluxccl {
namespace collectives {

// IEEE 754 binary16, by its bits.
struct Half {
  unsigned short bits;
};

// The upper half of a float.
struct Bfloat16 {
  unsigned short bits;
};

// T as it lies in memory, Value as it is combined, Modular the unsigned type in which it wraps around, Divisor what an
// average divides by.
template <typename T, typename Modular, typename Divisor>
struct IntegerElement {
  using Value = T;

  static FLUXCCL_DEVICE Value widen(T stored) { return stored; }
  static FLUXCCL_DEVICE T narrow(Value value) { return value; }
  static FLUXCCL_DEVICE Value add(Value a, Value b) {
    return static_cast<T>(static_cast<Modular>(a) + static_cast<Modular>(b));
  }
  static FLUXCCL_DEVICE Value multiply(Value a, Value b) {
    return static_cast<T>(static_cast<Modular>(a) * static_cast<Modular>(b));
  }
  static FLUXCCL_DEVICE Value smaller(Value a, Value b) { return b < a ? b : a; }
  static FLUXCCL_DEVICE Value larger(Value a, Value b) { return a < b ? b : a; }
  static FLUXCCL_DEVICE Value divide(Value sum, int by) { return static_cast<T>(sum / static_cast<Divisor>(by)); }
};

template <typename T>
struct FloatElement {
  using Value = T;

  static FLUXCCL_DEVICE Value widen(T stored) { return stored; }
  static FLUXCCL_DEVICE T narrow(Value value) { return value; }
  static FLUXCCL_DEVICE Value add(Value a, Value b) { return a + b; }
  static FLUXCCL_DEVICE Value multiply(Value a, Value b) { return a * b; }
  // fmin and fmax would prefer the number to the NaN; of zeros they take the sign as Java does.
  static FLUXCCL_DEVICE Value smaller(Value a, Value b) { return a != a ? a : b != b ? b : least(a, b); }
  static FLUXCCL_DEVICE Value larger(Value a, Value b) { return a != a ? a : b != b ? b : most(a, b); }
  static FLUXCCL_DEVICE Value divide(Value sum, int by) { return sum / static_cast<Value>(by); }

 private:
  static FLUXCCL_DEVICE float least(float a, float b) { return fminf(a, b); }
  static FLUXCCL_DEVICE double least(double a, double b) { return fmin(a, b); }
  static FLUXCCL_DEVICE float most(float a, float b) { return fmaxf(a, b); }
  static FLUXCCL_DEVICE double most(double a, double b) { return fmax(a, b); }
};

template <typename T>
struct Element;

template <>
struct Element<signed char> : IntegerElement<signed char, uint32_t, int32_t> {};
template <>
struct Element<uint8_t> : IntegerElement<uint8_t, uint32_t, int32_t> {};
template <>
struct Element<int32_t> : IntegerElement<int32_t, uint32_t, int32_t> {};
template <>
struct Element<uint32_t> : IntegerElement<uint32_t, uint32_t, uint32_t> {};
template <>
struct Element<int64_t> : IntegerElement<int64_t, uint64_t, int64_t> {};
template <>
struct Element<uint64_t> : IntegerElement<uint64_t, uint64_t, uint64_t> {};
template <>
struct Element<float> : FloatElement<float> {};
template <>
struct Element<double> : FloatElement<double> {};

template <>
struct Element<Half> : FloatElement<float> {
  static FLUXCCL_DEVICE float widen(Half stored) {
    float value;
    asm("cvt.f32.f16 %0, %1;" : "=f"(value) : "h"(stored.bits));
    return value;
  }
  static FLUXCCL_DEVICE Half narrow(float value) {
    Half stored;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored.bits) : "f"(value));
    return stored;
  }
};

template <>
struct Element<Bfloat16> : FloatElement<float> {
  static FLUXCCL_DEVICE float widen(Bfloat16 stored) { return __uint_as_float(static_cast<uint32_t>(stored.bits) << 16); }
  // To the nearest, ties to even; cvt.rn.bf16.f32 would need sm_80.
  static FLUXCCL_DEVICE Bfloat16 narrow(float value) {
    uint32_t bits = __float_as_uint(value);
    uint32_t rounded = value != value ? bits | 0x400000u : bits + 0x7fffu + (bits >> 16 & 1u);
    return Bfloat16{static_cast<unsigned short>(rounded >> 16)};
  }
};

}  // namespace collectives
}  // namespace fluxccl
