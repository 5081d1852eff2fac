#pragma once
// The part of the C++ library and of the CUDA runtime that the headers of kernels use, for NVRTC, which has neither.
// The functions that launch kernels are never instantiated: names are enough for them.
using int8_t = signed char;
using int16_t = short;
using int32_t = int;
using int64_t = long;
using uint8_t = unsigned char;
using uint16_t = unsigned short;
using uint32_t = unsigned;
using uint64_t = unsigned long;
using uintptr_t = unsigned long;
#define INT32_MAX 0x7fffffff
#define UINT32_MAX 0xffffffffu
#define INT64_MAX 0x7fffffffffffffffL
#define NAN __int_as_float(0x7fffffff)
#define INFINITY __int_as_float(0x7f800000)

namespace std {
using ::copysign;
using ::erf;
using ::exp;
using ::expm1;
using ::fabs;
using ::fma;
using ::fmax;
using ::signbit;
using ::tanh;
template <bool, class A, class>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool HOLDS, class A, class B>
using conditional_t = typename conditional<HOLDS, A, B>::type;
template <bool, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool HOLDS, class T = void>
using enable_if_t = typename enable_if<HOLDS, T>::type;
template <class A, class B>
constexpr bool is_same_v = false;
template <class A>
constexpr bool is_same_v<A, A> = true;
template <class T>
constexpr bool is_empty_v = __is_empty(T);
template <class...>
struct tuple {};
template <int K, class ALL>
struct tuple_element;
template <class FIRST, class... REST>
struct tuple_element<0, tuple<FIRST, REST...>> {
  using type = FIRST;
};
template <int K, class FIRST, class... REST>
struct tuple_element<K, tuple<FIRST, REST...>> : tuple_element<K - 1, tuple<REST...>> {};
template <int K, class ALL>
using tuple_element_t = typename tuple_element<K, ALL>::type;
template <class T>
struct atomic {
  T value;
};
}  // namespace std

inline cudaError_t cudaGetDevice(int*) { return cudaSuccess; }
inline cudaError_t cudaSetDevice(int) { return cudaSuccess; }
inline cudaError_t cudaDeviceGetAttribute(int*, cudaDeviceAttr, int) { return cudaSuccess; }

// Kernels become functions of a thread, which nvrtc/kernels.cuh calls.
#undef __global__
#undef __launch_bounds__
#undef __grid_constant__
#define __global__ __device__
#define __launch_bounds__(...)
#define __grid_constant__
