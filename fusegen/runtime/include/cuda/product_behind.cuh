#pragma once
// A product of matrices with the kernel behind it: the function of an element computes each result from its sum, as
// the kernel would from memory.
#include "cuda/piecewise_segments.cuh"
#include "cuda/piecewise_uniform.cuh"
#include "cuda/product_launch.cuh"

namespace fusegen {
namespace {

// The evaluation of an element by a method: the function, the type it computes in, and what has to be there before.
template <class METHOD>
struct Evaluation;
template <typename M>
struct Evaluation<Formula<M>> {
  template <class F>
  using Function = F;
  using Math = M;
  template <class F>
  static cudaError_t prepared(const CallOf<F>&) {
    return cudaSuccess;
  }
};
template <>
struct Evaluation<PiecewiseUniform> {
  template <class F>
  using Function = piecewise_uniform::UniformKernel<F>;
  using Math = float;
  template <class F>
  static cudaError_t prepared(const CallOf<F>& call) {
    using namespace piecewise_uniform;
    static std::atomic<uint64_t> devices{0};
    return filled<F>(call, fit<F>, UNIFORM_PIECES<F>, devices);
  }
};
template <typename O>
struct Evaluation<PiecewiseSegments<O>> {
  template <class F>
  using Function = piecewise_segments::SegmentsKernel<F, O>;
  using Math = float;
  template <class F>
  static cudaError_t prepared(const CallOf<F>& call) {
    return PiecewiseSegments<O>::template fitted<F>(call);
  }
};

// The kernel behind a product. Its operands but the first have a stride for the columns of `out`, and one for its rows.
template <class F, class METHOD>
struct KernelBehind {
  static constexpr int TOGETHER = 8, OPERANDS = F::INPUTS - 1;
  using M = typename METHOD::Math;
  const float* operand[OPERANDS + 1];
  int64_t column_stride[OPERANDS + 1], row_stride[OPERANDS + 1];
  ParamsOf<F, M> p;

  explicit KernelBehind(const CallOf<F>& call) : p(params<ParamsOf<F, M>>(call)) {
    for (int k = 1; k <= OPERANDS; ++k) {
      operand[k] = static_cast<const float*>(call.data[k]);
      column_stride[k] = call.stride[k][0], row_stride[k] = call.stride[k][1];
    }
  }
  __device__ __forceinline__ float operator()(float sum, int64_t row, int64_t column) const {
    M in[F::INPUTS], out[1];
    in[0] = load(sum);
#pragma unroll
    for (int k = 1; k <= OPERANDS; ++k)
      in[k] = load(__ldg(operand[k] + column * column_stride[k] + row * row_stride[k]));
    METHOD::template Function<F>::template element<float>(in, out, p);
    float y;
    store_rounded(y, out[0]);
    return y;
  }
};

template <class F>
const char* run_multiplied(const CallOf<F>& call, const Product& of) {
  using Method = Evaluation<MethodOf<F, float>>;
  const OnDevice on(call.device);
  const cudaError_t error = on.error == cudaSuccess ? Method::template prepared<F>(call) : on.error;
  if (error != cudaSuccess) return cudaGetErrorString(error);
  return launch_all<Terms::TOGETHER>(of, KernelBehind<F, Method>(call), call.device, call.stream);
}

}  // namespace
}  // namespace fusegen

// The function that the binding calls, in a library of its own.
#define FUSEGEN_MULTIPLIED(NAME, F)                                                             \
  extern "C" const char* NAME##_multiplied_launch(const fusegen::CallOf<fusegen::F>& call,      \
                                                  const fusegen::Product& of) {                 \
    return fusegen::run_multiplied<fusegen::F>(call, of);                                    \
  }
