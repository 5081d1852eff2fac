#pragma once
// The launch of kernels that compute each element by itself, in the namespace of cuda/pointwise.cuh.
// The kernel for so many vectors a thread; 0 where tensors are not dense.
template <class F, typename T, typename M, int VECTORS>
constexpr auto kernel_of() {
  if constexpr (F::TWO_PHASES && VECTORS > 0) return two_phase_kernel<F, T, M, VECTORS>();
  else if constexpr (PREFETCHES<F, T>) return pointwise_prefetching<F, T, M, VECTORS>;
  else return pointwise<F, T, M, VECTORS>;
}
template <class F, typename T, typename M>
constexpr auto dense_kernel(int vectors) {
  constexpr auto all = launches<F, T>();
  if constexpr (any_has(all, 4)) {
    if (vectors == 4) return kernel_of<F, T, M, 4>();
  }
  if constexpr (any_has(all, 2)) {
    if (vectors == 2) return kernel_of<F, T, M, 2>();
  }
  return kernel_of<F, T, M, 1>();
}

// Launches a kernel on tensors of several shapes or layouts, if it can; cuda/broadcast.cuh defines it.
template <class F, typename T, typename M>
bool launch_broadcasting(const CallOf<F>& call, cudaError_t& error);

// Launches a kernel whose outputs may be sums; cuda/reduce.cuh defines it.
template <class F, typename T, typename M>
cudaError_t reduce_with(const CallOf<F>& call, void* workspace);

// Launches a kernel that computes in M.
template <class F, typename T, typename M>
cudaError_t launch(const CallOf<F>& call) {
  const bool vectors = in_vectors<T>(call), dense = call.dense && vectors;
  if constexpr (F::BROADCASTS) {
    cudaError_t error = cudaSuccess;
    if (!dense && launch_broadcasting<F, T, M>(call, error)) return error;
  }
  if (!dense && call.numel > INT32_MAX) {
    CallOf<F> rest;
    const cudaError_t error = launch<F, T, M>(first_half<T>(call, rest));
    return error == cudaSuccess ? launch<F, T, M>(rest) : error;
  }
  std::decay_t<decltype(*launches<F, T>())> by = {0, ANY, 128, 1};  // where not dense
  if (dense) by = select_config(launches<F, T>(), chip_of(call.device), call.numel * sizeof(T));
  const int64_t block = by.vectors * by.threads * (16 / sizeof(T));
  const unsigned blocks = unsigned((call.numel + block - 1) / block);
  const auto kernel = dense ? dense_kernel<F, T, M>(by.vectors) : kernel_of<F, T, M, 0>();
  const auto stream = static_cast<cudaStream_t>(call.stream);
  const auto p = params<ParamsOf<F, M>>(call);
  if constexpr (PREFETCHES<F, T>) kernel<<<blocks, by.threads, 0, stream>>>(call, vectors, by.prefetch_blocks, p);
  else kernel<<<blocks, by.threads, 0, stream>>>(call, vectors, p);
  return cudaGetLastError();
}

template <typename M>
struct FormulaLaunch {
  template <class F, typename T>
  static cudaError_t launch(const CallOf<F>& call) {
    return fusegen::launch<F, T, M>(call);
  }
  template <class F, typename T>
  static cudaError_t reduce(const CallOf<F>& call, void* workspace) {
    return reduce_with<F, T, M>(call, workspace);
  }
};

// Launches F on elements of whichever type the tensors have.
template <class F, int... DTYPES>
cudaError_t launch_any(const CallOf<F>& call, Dtypes<DTYPES...>) {
  cudaError_t error = cudaSuccess;
  const auto launched = [&](int dtype, auto element) {
    using T = decltype(element);
    if (call.dtype != dtype) return false;
    error = MethodOf<F, T>::template launch<F, T>(call);
    return true;
  };
  (void)(launched(DTYPES, typename ElementOf<DTYPES>::type()) || ...);
  return error;
}

// Launches F on the current stream of the tensors' device; returns what went wrong, or nothing.
template <class F>
const char* run(const CallOf<F>& call) {
  const OnDevice here(call.device);
  const cudaError_t error = here.error == cudaSuccess ? launch_any<F>(call, typename F::Elements()) : here.error;
  return error == cudaSuccess ? nullptr : cudaGetErrorString(error);
}
