#pragma once
// Kernels of a gradient that is one of two multiples of the incoming one. The forward kernel stores which, a bit an
// element and a byte for each 16-byte vector, and the backward kernel reads these instead of the elements.
#include "cuda/pointwise.cuh"

namespace fusegen {
namespace {

constexpr int BITMASK_THREADS = 128;  // of a block; each computes a vector

// FORWARD, and the bits that BIT says of its input, or of its output where OF_OUTPUT.
template <class FORWARD, class BIT, bool OF_OUTPUT, typename T, typename M>
__global__ void __launch_bounds__(BITMASK_THREADS)
    forward_write_bitmask(const __grid_constant__ CallOf<FORWARD> call, int64_t vectors, uint8_t* mask,
                          const ParamsOf<FORWARD, M> p) {
  const int64_t i = int64_t(blockIdx.x) * BITMASK_THREADS + threadIdx.x;
  if (i >= vectors) return;
  Vector<T> v[2] = {static_cast<const Vector<T>*>(call.data[0])[i]};
  uint32_t bits = 0;
#pragma unroll
  for (int e = 0; e < 16 / int(sizeof(T)); ++e) {
    element<FORWARD, T, M>(v, e, p);
    const M in[] = {load(v[OF_OUTPUT].at[e])};
    M out[1];
    BIT::template element<T>(in, out, p);
    bits |= uint32_t(out[0] > 0) << e;
  }
  static_cast<Vector<T>*>(call.data[1])[i] = v[1];
  mask[i] = uint8_t(bits);
}

// FROM_BIT, of the incoming gradient and the bits.
template <class FROM_BIT, typename T, typename M>
__global__ void __launch_bounds__(BITMASK_THREADS)
    backward_read_bitmask(const __grid_constant__ Call<3, FROM_BIT::SCALARS> call, int64_t vectors, uint8_t* mask,
                          const ParamsOf<FROM_BIT, M> p) {
  const int64_t i = int64_t(blockIdx.x) * BITMASK_THREADS + threadIdx.x;
  if (i >= vectors) return;
  Vector<T> v = static_cast<const Vector<T>*>(call.data[0])[i];
  const uint32_t bits = mask[i];
#pragma unroll
  for (int e = 0; e < 16 / int(sizeof(T)); ++e) {
    const M in[] = {load(v.at[e]), M(bits >> e & 1)};
    M out[1];
    FROM_BIT::template element<T>(in, out, p);
    store(v.at[e], out[0]);
  }
  static_cast<Vector<T>*>(call.data[2])[i] = v;
}

// The two kernels, for the launch below.
template <class FORWARD, class BIT, bool OF_OUTPUT>
struct BitmaskForward : FORWARD {
  template <typename T, typename M>
  static constexpr auto kernel = forward_write_bitmask<FORWARD, BIT, OF_OUTPUT, T, M>;
};
template <class FROM_BIT>
struct BitmaskGradient : FROM_BIT {
  template <typename T, typename M>
  static constexpr auto kernel = backward_read_bitmask<FROM_BIT, T, M>;
};

template <class F, typename T, class C>
cudaError_t launch_bitmask(const C& call, uint8_t* mask) {
  using M = decltype(load(T()));
  const auto kernel = F::template kernel<T, M>;
  const int64_t vectors = call.numel / (16 / sizeof(T));
  const unsigned blocks = unsigned((vectors + BITMASK_THREADS - 1) / BITMASK_THREADS);
  const auto stream = static_cast<cudaStream_t>(call.stream);
  kernel<<<blocks, BITMASK_THREADS, 0, stream>>>(call, vectors, mask, params<ParamsOf<F, M>>(call));
  return cudaGetLastError();
}

template <class F, class C, int... DTYPES>
cudaError_t launch_bitmask_any(const C& call, uint8_t* mask, Dtypes<DTYPES...>) {
  cudaError_t error = cudaSuccess;
  const auto launched = [&](int dtype, auto element) {
    if (call.dtype != dtype) return false;
    error = launch_bitmask<F, decltype(element)>(call, mask);
    return true;
  };
  (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error;
}

// Dense tensors in whole vectors, with their bitmask.
template <class F, class C>
const char* run_bitmask(const C& call, void* mask) {
  const OnDevice here(call.device);
  cudaError_t error = here.error;
  if (error == cudaSuccess) error = launch_bitmask_any<F>(call, static_cast<uint8_t*>(mask), typename F::Elements());
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}

}  // namespace
}  // namespace fusegen

// The functions that the binding calls, of the kernels Forward, Bit and FromBit.
#ifdef WITHOUT_FORWARD
#define FUSEGEN_BITMASK_FORWARD(NAME, OF_OUTPUT)
#else
#define FUSEGEN_BITMASK_FORWARD(NAME, OF_OUTPUT)                                                                   \
  extern "C" const char* NAME##_forward_masked_launch(const fusegen::CallOf<fusegen::Forward>& call, void* mask) { \
    using namespace fusegen;                                                                                       \
    return run_bitmask<BitmaskForward<Forward, Bit, OF_OUTPUT>>(call, mask);                                       \
  }
#endif
#ifdef WITHOUT_BACKWARD
#define FUSEGEN_BITMASK_BACKWARD(NAME)
#else
#define FUSEGEN_BITMASK_BACKWARD(NAME)                                                                          \
  extern "C" const char* NAME##_backward_masked_launch(const fusegen::Call<3, fusegen::FromBit::SCALARS>& call, \
                                                       void* mask) {                                            \
    return fusegen::run_bitmask<fusegen::BitmaskGradient<fusegen::FromBit>>(call, mask);                        \
  }
#endif
#define FUSEGEN_BITMASK_KERNELS(NAME, OF_OUTPUT) \
  FUSEGEN_BITMASK_FORWARD(NAME, OF_OUTPUT)       \
  FUSEGEN_BITMASK_BACKWARD(NAME)
